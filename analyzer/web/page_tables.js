/* The report's lists as tables, one at a time. A row of `tables` for each: name, words, the rows, the columns. */
"use strict";
(function (page) {
    const make = page.make;
    /* A line's call paths, below it: distinguished by what each called or what called it. */
    function pathsOf(row) {
        if (!row.paths || row.paths.length < 2) return null;
        const other = s => (s.inner || (s.helper || s.library ? s.via : null) ? "→ " + page.frameText(s.inner || s.via)
                : s.caller                                                   ? "← " + page.frameText(s.caller)
                                                                             : page.siteText(s));
        const amount = p => (p.bytes ? page.bytes(p.bytes) : page.seconds(p.blocked_s));
        const left = row.paths_total - row.paths.length;
        return make("details", {class: "paths"}, make("summary", null, page.plural(row.paths_total, "call path")),
            row.paths.map(p => make("div", {class: "sub"}, page.whole(amount(p)) + "  " + other(p.site))),
            left > 0 ? make("div", {class: "sub"}, "and " + page.count(left) + " more") : null);
    }
    const site = (key, words) => ({
        key: "line", class: "line", words: words || "line", value: row => page.siteText(row[key || "site"]),
        cell: row => {
            const s = row[key || "site"], inner = s && (s.inner || (s.library || s.helper ? s.via : null));
            const extra = [
                inner ? "in " + page.frameText(inner) : "", s && s.caller ? "← " + page.frameText(s.caller) : ""
            ].filter(Boolean).join("  ");
            return make("div", {class: "place"}, page.siteButton(page.siteText(s), page.siteCopy(s)),
                extra ? make("span", {class: "sub"}, extra) : null, pathsOf(row));
        },
    });
    const numeric = (key, words, format, value) => ({
        key,
        words: words || key,
        n: true,
        value: value || (row => row[key]),
        cell: row => format((value || (r => r[key]))(row), row)
    });
    const bytes = (key, words, value) =>
        numeric(key, words || "bytes", v => (v === null || v === undefined ? "" : page.bytes(v)), value);
    const seconds = (key, words) => numeric(key, words, v => (v === null ? "" : page.seconds(v)));
    const count = (key, words) => numeric(key, words || key, v => (v === null || v === undefined ? "" : page.count(v)));
    const share = (key, words) => ({...numeric(key, words, v => page.share(v)), class: "desk"}); /* no room on a phone */
    const word = (key, words, say) => ({
        key,
        words: words || key,
        value: row => (say ? say(row) : row[key]),
        cell: row => page.clean(say ? say(row) : row[key])
    });
    const advice = {
        key: "advice",
        words: "what to do",
        class: "advice",
        value: null,
        cell: row => (row.advice ? page.sentence(row.advice) : "")
    };
    const where = () =>
        (page.places.filter(place => place.device >= 0).length > 1 ? [word("where", "where", page.where)] : []);
    const layer = {
        key: "layer",
        words: "kind",
        class: "short",
        value: row => row.layer,
        cell: row => ({tensor: "tensors", device: "CUDA allocations"}[row.layer] || page.layerWords(row.layer).toLowerCase())
    };
    /* Calls per step, or the phase of lines that not every step calls, as in the terminal. */
    const pace = numeric("calls_per_step", "per step",
        (v, row) => (v === null || v === undefined || (row.phase && row.phase !== "step" && row.phase !== "logging")
                ? (row.phase ? page.clean(row.phase) : "")
                : v >= 9.95 ? v.toFixed(0)
                            : String(Number(v.toFixed(1)))));

    const peakRows = () => page.report.peak.flatMap(peak => peak.by_line.map(row => Object.assign({
        layer: peak.layer,
        device: peak.device,
        pid: peak.pid,
        rank: peak.rank,
        part: row.bytes / (peak.bytes || 1),
        pinned: peak.device < 0,
    },
                                                                                 row)));
    const ownerRows = () => page.report.peak.flatMap(
        peak => (peak.owners || [])
                    .map(row => Object.assign(
                             {device: peak.device, pid: peak.pid, rank: peak.rank, part: row.bytes / (peak.bytes || 1)},
                             row)));

    /* One growth has several lines if one thing keeps them all. */
    const grown = Object.assign(site(), {
        cell: row => {
            const rest = row.lines.filter(line => page.siteText(line.site) !== page.siteText(row.site)).slice(0, 4);
            const more = rest.map(line =>
                make("span", {class: "sub"}, page.bytes(line.bytes) + " of it: " + page.siteText(line.site)));
            const kept = (row.holders || []).map((holder, i) => make("span", {class: "sub"}, (i ? "or by " : "kept by ") +
                holder.file.split("/").pop() + ":" + holder.line + "  " + page.clean(holder.text) + "  (guess)"));
            return make("div", null, site().cell(row), make("div", {class: "place"}, kept, more));
        },
    });
    const how = row => [row.graph ? "lines of one forward pass grow together; whether an autograd graph keeps them is unknown" : "",
        row.jumps ? "in " + page.plural(row.jumps, "jump") + ", not with each step" : ""].filter(Boolean).join("; ");
    /* Measured after the last allocation: at the very end, the process frees everything as it exits. */
    const allocatorMoments = {oom: "out of memory", end: "last allocation"};
    const allocatorRows = () => page.report.allocator.flatMap(state => {
        const at = {moment: state.moment, device: state.device, pid: state.pid, rank: state.rank};
        const some = (list, say) => (list.length > 1 ? list : []).map(part => Object.assign({of: say(part)}, at, part));
        const stream = part => (part.stream === null ? "an unknown stream" : "stream " + part.stream);
        return [Object.assign({of: "all"}, state), ...some(state.by_pool, part => part.pool + " pool"),
            ...some(state.by_stream, stream)];
    });

    /* The categories, then their sums, as gpuspy report prints them. */
    const budgetRows = function () {
        const budget = page.report.budget;
        if (!budget || !budget.estimate || !budget.estimate.total_bytes) return [];
        const planned = budget.estimate.peak_bytes !== undefined;
        const sum = (what, row) => Object.assign({category: null, what, most_bytes: null, why: ""}, row);
        return [...budget.categories,
            ...(planned || budget.measured.peak_bytes === null ? [] : [sum("the minimum, and the peak",
                {estimate_bytes: budget.estimate.total_bytes, estimate_low_bytes: budget.estimate.total_bytes,
                    estimate_high_bytes: budget.estimate.total_bytes, measured_bytes: budget.measured.peak_bytes,
                    difference_bytes: budget.difference.bytes})]),
            ...budget.levels.map(level => sum(level.what, Object.assign({}, level,
                {difference_bytes: level.measured_bytes - level.estimate_bytes,
                    why: level.inside === false ? "not between low and high" : ""})))];
    };
    const moments = {forward_end: "the end of forward", backward_end: "the end of backward", step: "the optimizer step"};
    const budgetMoment = function () {
        const {estimate, measured} = page.report.budget;
        if (estimate.peak_bytes === undefined) return "Activations are not included.";
        const expected = "Expected at the peak, with all that is on the device: " + page.bytes(estimate.peak_bytes) + " (" +
            page.bytes(estimate.peak_low_bytes) + " – " + page.bytes(estimate.peak_high_bytes) + ") at " + moments[estimate.phase] + ". ";
        if (measured.out_of_memory && measured.phase === "forward_end")
            return expected + "Memory ran out in forward; the estimates are for the end of forward, which the run did not reach.";
        if (!moments[measured.phase]) return expected + "The moment of the measured peak in the step is unknown.";
        return expected + (measured.phase === estimate.phase ? "The measured peak was at the same moment."
            : "The measured peak was at " + moments[measured.phase] + ", and the estimates are those of that moment.");
    };

    const tables = [
        {
            name: "peak",
            words: "Peak by line",
            rows: peakRows,
            sort: "bytes",
            columns: () => [bytes("bytes"), share("part", "share"), count("count"), layer, ...where(), site()]
        },
        {
            name: "growth",
            words: "Growth",
            rows: () => page.report.growth,
            sort: "bytes",
            columns: () => {
                const {growth} = page.report;
                return [bytes("bytes", "grew by"), bytes("bytes_per_step", "per step"), count("steps"),
                    ...(growth.every(row => row.step === "step") ? [] : [word("step", "step is")]), layer, ...where(), grown,
                    ...(growth.some(how) ? [word("why", "how", how)] : [])];
            },
            about: "Memory that rose steadily over the run: inferred, and wrong if a later step reads it again."
        },
        {
            name: "leaks",
            words: () => page.live.endWords(),
            rows: () => page.report.leak_lines,
            sort: "bytes",
            columns: () => [bytes("bytes"), count("count"), layer,
                word("growing", "", row => (row.growing ? "grows" : "")), ...where(), site()],
            about: "At the end of the process, not at an out-of-memory error. This is normal for a model that lives until the end; " +
                "memory that grows is a leak.",
            more: () => {
                const left = page.places
                    .flatMap(place => page.layersOf(place).map(l => [place, page.live.unlisted(place, l)]))
                    .filter(([, rest]) => rest);
                const notes = left.slice(0, 8).map(([place, rest]) => make("p", {class: "note"},
                    (page.places.length > 1 ? page.capital(page.where(place)) + ": " : "") + rest.said));
                const some = page.places.some(place => "tensor" in place.layers && "device" in place.layers);
                return [...notes, some
                    ? make("p", {class: "note"},
                        "PyTorch's CUDA allocations are not listed: PyTorch caches them until the end by design.")
                    : null];
            }
        },
        {
            name: "sync",
            words: "Waits",
            rows: () => page.report.sync_lines,
            sort: "blocked_s",
            columns: () => [seconds("blocked_s", "waited"), share("share", "share"), count("count", "times"), pace,
                word("pattern", "for", row => row.pattern || row.api || row.kind), site(), advice]
        },
        {
            name: "transfers",
            words: "Copies",
            rows: () => page.report.transfer_lines,
            sort: "bytes",
            columns: () => [bytes("bytes"), count("count", "times"), pace,
                numeric("bytes_per_s", "rate", v => page.rate(v)), seconds("blocked_s", "waited"),
                word("direction", "direction", row => (page.model.directions[row.direction] || row.direction)),
                word("host_memory", "host memory", row => (row.host_memory === "none" ? "" : row.host_memory)), site(),
                advice]
        },
        {
            name: "churn",
            words: "Churn",
            rows: () => page.report.churn_lines,
            sort: "count",
            columns: () => [count("count", "times"), bytes("bytes"),
                numeric("per_s", "per second", v => (v === null ? "" : v.toFixed(v < 10 ? 1 : 0))),
                seconds("mean_life_s", "lived"), site(), advice],
            about: "GPU memory allocated and freed again and again after the first tenth of the run's allocations: each such call stops the " +
                "program for a moment."
        },
        {
            name: "retries",
            words: "Retries",
            rows: () => page.report.retries,
            sort: "time_s",
            columns: () => [seconds("time_s", "at"), bytes("requested_bytes", "requested"),
                bytes("freed_bytes", "freed"), count("failures"), seconds("blocked_s", "took"), ...where(),
                site()],
            about: "An allocation failed, the allocator freed its cache, and the allocation then succeeded."
        },
        {
            name: "flushes",
            words: "Cache flushes",
            rows: () => page.report.cache_flushes,
            sort: "bytes",
            columns: () => [bytes("bytes", "freed"), bytes("taken_again_bytes", "reserved again"),
                count("count", "times"), seconds("blocked_s", "waited"), word("kind"), ...where(), site(), advice]
        },
        {
            name: "ranks",
            words: "Ranks",
            rows: () => page.report.ranks,
            sort: null,
            columns:
                () => [word("rank"), word("pid"), word("gpu", "GPU"), bytes("tensor_peak_bytes", "peak in tensors"),
                    bytes("device_peak_bytes", "peak of CUDA allocations"),
                    ...(page.lacks("waits") ? [] : [seconds("blocked_s", "waited")])],
            more: () => page.report.rank_findings.map(
                f => make("p", {class: "note"}, page.sentence(f.text + (f.advice ? ": " + f.advice : ""))))
        },
        {
            name: "owners",
            words: "Owners",
            rows: ownerRows,
            sort: "bytes",
            columns: () => [bytes("bytes"), share("part", "share"), count("count"), word("owner"),
                word("by", "evidence"), ...where(), site()],
            about: "GPU memory at its peak, by the library that allocated it."
        },
        {
            name: "budget",
            words: "Budget",
            rows: budgetRows,
            sort: null,
            columns: () => [word("category", "category", row => row.what || page.categoryName(row.category)),
                bytes("estimate_bytes", "estimated"), bytes("estimate_low_bytes", "low"),
                bytes("estimate_high_bytes", "high"), bytes("measured_bytes", "at the peak"),
                bytes("most_bytes", "at most"),
                numeric("difference_bytes", "difference", v => (v === null ? "" : page.signed(v))), word("why")],
            more: () => make("p", {class: "note"}, budgetMoment())
        },
        {
            name: "allocator",
            words: "Allocator",
            rows: allocatorRows,
            sort: null,
            columns: () => [word("moment", "at the", row => allocatorMoments[row.moment] || row.moment), ...where(), word("of", "kind"), bytes("reserved_bytes", "held"),
                bytes("allocated_bytes", "in blocks"), bytes("pending_bytes", "waiting for a stream"),
                bytes("largest_free_bytes", "largest hole"), count("segments"), count("blocks")],
            about: "What PyTorch’s allocator held, by pool and by stream."
        },
        {
            name: "fragmentation",
            words: "Fragmentation",
            rows: () => page.report.fragmentation,
            sort: null,
            columns: () => [...where(), seconds("time_s", "at"), bytes("reserved_bytes", "held"),
                bytes("active_bytes", "in tensors"), bytes("free_bytes", "free of it"),
                bytes("largest_free_bytes", "largest hole"), share("utilisation", "in use"),
                ...["segments", "blocks"].map(key => numeric(key, key, v => (v ? page.count(v) : "")))] /* 0: unknown */
        },
        {
            name: "scopes",
            words: "Peaks by range",
            rows: () => page.report.scopes,
            sort: null,
            columns: () => [bytes("peak_bytes", "peak"), bytes("entry_bytes", "at entry"), bytes("exit_bytes", "at exit"),
                count("count", "times"), word("layer"), ...where(), seconds("peak_time_s", "at"), word("name", "range"),
                word("domain")],
            about: () => "Live on the GPU while at least one " + page.rangeWord() +
                " range of that name was open, on any thread."
        },
        {
            name: "marks",
            words: () => page.rangeWord() + " ranges",
            rows: () => page.report.marks,
            sort: null,
            columns: () => [seconds("total_s", "in total"), count("count", "times"), word("name"), word("kind"),
                word("domain")]
        },
        {
            name: "calls",
            words: "Calls",
            rows: () => page.report.calls,
            sort: "count",
            columns: () => [count("count", "times"),
                numeric("per_s", "per second", v => (v === null ? "" : page.count(v))), word("api", "call")]
        },
        {
            name: "processes",
            words: "Processes",
            rows: () => (page.report.run.processes.length > 1 ? page.report.run.processes : []),
            sort: null,
            columns: () => [word("pid"), word("rank"), word("host"), seconds("duration_s", "ran for"),
                count("lost_events", "lost"), word("command")]
        },
    ];

    /* What the filter searches: the text of a row, and its whole paths. */
    function text(table) {
        return row => {
            if (row.searched === undefined) {
                const parts = [], take = (v, depth) => {
                    if (typeof v === "string") parts.push(v.slice(0, 2000));
                    else if (Array.isArray(v)) { if (depth < 3) v.slice(0, 80).forEach(x => take(x, depth + 1)); }
                    else if (v && typeof v === "object" && depth < 3) Object.values(v).forEach(x => take(x, depth + 1));
                };
                Object.entries(row).forEach(([key, v]) => { if (key !== "stack" && key !== "frames") take(v, 0); });
                Object.defineProperty(row, "searched", {value: parts.join("\n"), enumerable: false});
            }
            return row.searched + "\n" + page.siteText(row.site);
        };
    }

    const kept = new Map();
    const rowsOf = table => {
        if (!kept.has(table.name)) kept.set(table.name, table.rows());
        return kept.get(table.name);
    };
    function draw() {
        const there = tables.filter(t => rowsOf(t).length), node = page.byId("tables");
        node.hidden = !there.length;
        if (!there.length) return;
        const chosen = there.find(t => t.name === page.state.table) || there[0], query = page.state.query.trim();
        page.fill(page.byId("tabs"), there.map(t => {
            const hits = query ? rowsOf(t).filter(row => page.matches(text(t)(row))).length : rowsOf(t).length;
            return make("button", {
                type: "button",
                role: "tab",
                id: "tab-" + t.name,
                "aria-selected": String(t === chosen),
                tabindex: t === chosen ? "0" : "-1",
                onclick: () => page.set({table: t.name})
            },
                typeof t.words === "function" ? t.words() : t.words, make("span", {class: "faint"}, " " + page.count(hits)));
        }));
        const panel = page.byId("table");
        panel.setAttribute("aria-labelledby", "tab-" + chosen.name);
        const holder = make("div");
        page.fill(panel, chosen.about ? make("p", {class: "note"}, typeof chosen.about === "function" ? chosen.about() : chosen.about) : null,
            chosen.more ? chosen.more() : null, holder);
        page.table(holder, {
            id: chosen.name,
            columns: chosen.columns(),
            rows: rowsOf(chosen),
            sort: chosen.sort,
            limit: 20,
            text: text(chosen)
        });
    }
    page.tableNames = () => tables.filter(t => rowsOf(t).length).map(t => t.name);
    page.stepTable = function (by) {
        const names = page.tableNames(), now = Math.max(0, names.indexOf(page.state.table));
        page.set({table: names[(now + by + names.length) % names.length]});
    };
    page.parts.push(function () {
        page.byId("tabs").addEventListener("keydown", event => {
            if (event.key !== "ArrowRight" && event.key !== "ArrowLeft") return;
            event.preventDefault();
            event.stopPropagation();
            page.stepTable(event.key === "ArrowRight" ? 1 : -1);
            requestAnimationFrame(() => {
                const tab = page.byId("tabs").querySelector("[aria-selected=true]");
                if (tab) tab.focus();
            });
        });
    });
    page.view(["table", "query"], draw);
})(gpuspyPage);
