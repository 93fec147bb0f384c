/* What was live: at the peak, at the failure, at the end, at a moment that was clicked, or the change between two: as a
 * flame graph and as a table by line. */
"use strict";
(function (page) {
    const live = page.live = {entries: [], rows: []};

    const roots = [["top", "Root on top"], ["bottom", "Root at the bottom"]];
    const frameChoices = [
        ["yours", "Your code", "frames of PyTorch and Python are folded"],
        ["python", "Python", "all Python frames"], ["native", "With native", "C and C++ frames, too"]
    ];
    const fromModel = list => list.map(e => ({
        frames: e.line.stack >= 0 ? page.model.frames(e.line.stack) : [],
        label: e.line.site || e.line.label,
        category: e.line.category,
        bytes: e.bytes,
        count: e.count,
    }));

    /* A leak's category is that of its line, if all allocations of the line have the same. */
    function categoryOf(series) {
        const of = new Map();
        for (const line of series.lines)
            of.set(line.site, of.has(line.site) && of.get(line.site) !== line.category ? "unknown" : line.category);
        return label => of.get(label) || "unknown";
    }
    /* The name of the list of the end, the same everywhere in the page and as in the terminal
     * (analyzer/view/view_leaks.c). */
    live.endWords = function () {
        const processes = page.report.run.processes, first = page.report.leaks[0];
        return first && first.at_orderly_end                            ? "Never freed"
            : page.report.run.imported                                  ? "Live at the end of the recording"
            : processes.some(p => p.recording)                          ? "Live now"
            : processes.some(p => !p.complete)                          ? "Live when the program died"
                                                                        : "Live when the program ended";
    };
    live.leaks = function (place, layer) {
        return page.report.leaks.filter(l => page.isAt(l, place) && l.layer === layer);
    };

    /* What was live at the end and is not in the report's list, which is cut; null: the list is complete. */
    live.unlisted = function (place, layer) {
        const leaks = live.leaks(place, layer),
              peak = page.report.peak.find(p => page.isAt(p, place) && p.layer === layer);
        if (!peak || !leaks.length || typeof peak.end_bytes !== "number") return null;
        const bytes = leaks.reduce((left, l) => left - l.bytes, peak.end_bytes),
              count = leaks.reduce((left, l) => left - l.count, peak.end_count);
        if (!(bytes > 0)) return null;
        return {
            bytes,
            count,
            words: "smaller call sites, not listed",
            said: "Of " + page.bytes(peak.end_bytes) + " the report lists the " +
                page.plural(leaks.length, "largest call site") + "; " + page.bytes(bytes) + " in " +
                page.plural(count, "block") + (count === 1 ? " lies" : " lie") + " in smaller ones.",
        };
    };

    live.sources = function () {
        const {state} = page, place = page.places[state.place], series = page.series(), out = [];
        if (!series) return out;
        const oom = page.oomAt(place), leaks = live.leaks(place, state.layer);
        if (oom) out.push(["oom", "At the OOM"]);
        out.push(["peak", page.isMoment() ? "Live" : "At the peak"]);
        if (leaks.length) out.push(["end", live.endWords()]);
        if (state.moment !== null)
            out.push([
                "moment",
                "At " +
                    page.moment(
                        series.time[page.indexAt(series, state.moment)], series.time[series.n - 1] - series.time[0])
            ]);
        if (state.pin !== null && state.moment !== null) out.push(["compare", "A → B"]);
        return out;
    };
    live.source = function () {
        const sources = live.sources().map(s => s[0]);
        if (sources.includes(page.state.source)) return page.state.source;
        return sources[0] === "oom" && !page.oomAt(page.places[page.state.place]).fatal ? "peak" : sources[0];
    };

    /* At a peak or a failure a bounded recording has all rows. */
    function partly(series, ...indices) {
        const since = page.keptFrom(), peak = page.peakIndex(series);
        return indices.some(i => i !== peak && series.time[i] < since)
            ? " Too small: GPUSPY_KEEP removed most of what was live before " + page.seconds(since) + "."
            : "";
    }

    const makers = {
        peak: series => atIndex(series, page.peakIndex(series), page.isMoment() ? "live" : "live at the peak"),
        oom: (series, place) =>
            atIndex(series, page.indexAt(series, page.oomAt(place).time_s), "live at the out-of-memory error"),
        moment: function (series) {
            const i = page.indexAt(series, page.state.moment), entries = atIndex(series, i, "live");
            live.about += partly(series, i);
            return entries;
        },
        end: function (series, place) {
            const leaks = live.leaks(place, page.state.layer), category = categoryOf(series);
            live.about = live.endWords() +
                (page.report.run.imported ? ": whether the program freed it later is unknown; memory that grows is a leak."
                                          : ": normal for a model that lives until the end; memory that grows is a leak.");
            live.title = live.endWords().toLowerCase();
            const listed = leaks.map(l => {
                const label = page.siteText(l.site);
                return {
                    frames: l.stack.slice().reverse(),
                    label,
                    category: category(label),
                    bytes: l.bytes,
                    count: l.count
                };
            });
            const rest = live.unlisted(place, page.state.layer);
            if (rest) {
                live.about += " " + rest.said;
                listed.push({frames: [], label: rest.words, category: "unknown", bytes: rest.bytes, count: rest.count});
            }
            return listed;
        },
        compare: function (series) {
            const a = page.indexAt(series, page.state.pin), b = page.indexAt(series, page.state.moment),
                  span = Math.abs(series.time[b] - series.time[a]);
            live.title = "changed from A to B";
            live.about = "From A, " + page.bytes(series.high[a]) + " at " + page.moment(series.time[a], span) +
                ", to B, " + page.bytes(series.high[b]) + " at " + page.moment(series.time[b], span) + ": " +
                page.signed(series.high[b] - series.high[a]) + ". Orange is what grew, blue is what shrank." +
                partly(series, a, b);
            return fromModel(page.model.difference(page.model.at(series, a), page.model.at(series, b)));
        },
    };
    /* The index of a source's moment in the series; null none. */
    live.index = function (source, series) {
        const oom = page.oomAt(page.places[page.state.place]);
        return source === "peak"              ? page.peakIndex(series)
            : source === "oom" && oom         ? page.indexAt(series, oom.time_s)
            : source === "moment"             ? page.indexAt(series, page.state.moment)
            : source === "end" && series.n    ? series.n - 1
                                              : null;
    };
    function atIndex(series, i, title) {
        live.title = title;
        live.about = page.bytes(series.high[i]) + " " + title +
            (page.isMoment() ? ", " : " at " + page.seconds(series.time[i]) + ", ") +
            ({tensor: "in tensors", device: "CUDA allocations"}[page.state.layer] ||
                page.layerWords(page.state.layer).toLowerCase()) +
            ".";
        return fromModel(page.model.at(series, i));
    }

    /* If a line calls into a library other than PyTorch, the line there: it distinguishes the parts of one model. */
    function innerOf(frames) {
        const last = frames.filter(f => !page.isNative(f) && !page.isPlumbing(f)).pop();
        return last && page.isLibrary(last) ? page.frameText(last) : "";
    }

    live.rowKey = (label, frames) => label + "\0" + innerOf(frames);

    /* One row per line of code, with its categories. */
    function rowsOf(entries) {
        const rows = new Map();
        for (const e of entries) {
            const inner = innerOf(e.frames), key = live.rowKey(e.label, e.frames);
            let row = rows.get(key);
            if (!row) {
                const site = e.frames.filter(f => !page.isLibrary(f)).pop();
                rows.set(key, row = {
                    key,
                    label: e.label,
                    inner,
                    file: site && site.file,
                    line: site && site.line,
                    bytes: 0,
                    count: 0,
                    size: 0,
                    categories: new Map()
                });
            }
            row.bytes += e.bytes;
            row.size += Math.abs(e.bytes);
            row.count += e.count;
            row.categories.set(e.category, (row.categories.get(e.category) || 0) + Math.abs(e.bytes));
        }
        return Array.from(rows.values());
    }

    live.categories = function (categories) {
        const list = Array.from(categories).filter(c => c[1]).sort((a, b) => b[1] - a[1]), {make} = page;
        return make("span", {class: "cats"},
            list.slice(0, 3).map(([category]) => make("span", null, page.swatch(page.categoryColour(category)),
                                     page.categoryName(category))),
            list.length > 3 ? make("span", {class: "soft"}, "+" + (list.length - 3)) : null);
    };
    page.meter = function (parts, total) {
        const node = page.make("div", {class: "meter", "aria-hidden": "true"});
        for (const [bytes, colour] of parts) {
            const part = document.createElement("i");
            part.style.width = Math.max(0, Math.min(100, (100 * bytes) / (total || 1))) + "%";
            part.style.background = colour;
            node.append(part);
        }
        return node;
    };

    function table() {
        const compare = live.source() === "compare", {make} = page, rows = live.rows;
        const total = rows.reduce((sum, row) => sum + row.size, 0),
              most = rows.reduce((m, row) => Math.max(m, row.size), 0);
        const columns = [
            {
                key: "bytes",
                words: compare ? "change" : "bytes",
                n: true,
                value: row => (compare ? row.size : row.bytes),
                cell: row => (compare ? make("span", {class: row.bytes > 0 ? "more" : "less"}, page.signed(row.bytes))
                                      : page.bytes(row.bytes))
            },
            {
                key: "share",
                words: "share",
                n: true,
                value: row => row.size,
                cell: row => page.share(row.size / (total || 1))
            },
            {
                key: "meter",
                words: "",
                class: "share",
                value: null,
                cell: row => page.meter(compare
                        ? [[row.size, row.bytes > 0 ? page.ink.more : page.ink.less]]
                        : Array.from(row.categories).sort((a, b) => b[1] - a[1]).map(([category,
                              bytes]) => [bytes, page.categoryColour(category)]),
                    most)
            },
            {
                key: "count",
                words: compare ? "blocks" : "count",
                n: true,
                class: "desk",
                value: row => row.count,
                cell: row => (compare && row.count > 0 ? "+" : "") + (row.count < 0 ? "−" : "") +
                    page.count(Math.abs(row.count))
            },
            {
                key: "line",
                words: "line",
                value: row => row.label,
                class: "line",
                cell: row => make("div", {class: "place"},
                    page.siteButton(
                        page.clean(row.label), row.file ? row.file + (row.line ? ":" + row.line : "") : row.label),
                    row.inner ? make("span", {class: "sub"}, "in ", page.marked(row.inner)) : null,
                    page.blocks.under(live.source(), row),
                    page.isPlain(page.series())
                        ? null
                        : make("span", {class: "sub phone"}, live.categories(row.categories)))
            },
            {
                key: "category",
                words: "category",
                class: "desk",
                value: row => Array.from(row.categories.keys())[0],
                cell: row => live.categories(row.categories)
            },
        ];
        if (page.isPlain(page.series())) columns.pop();
        page.table(page.byId("live-table"), {
            id: "live",
            columns,
            rows,
            sort: "bytes",
            limit: 12,
            text: row => row.label + " " + row.inner + " " + (row.file || "") + " " +
                Array.from(row.categories.keys(), page.categoryName).join(" "),
        });
    }

    /* Shows only the band that was clicked. */
    function showBand(source) {
        const {band} = page.state, {make} = page, node = page.byId("band");
        const bySite = page.stackedBy() === "site", of = bySite ? e => e.label : e => e.category;
        const entries = band === null || source === "compare" ? [] : live.entries.filter(e => of(e) === band);
        node.hidden = !entries.length;
        if (!entries.length) return;
        const all = live.entries.length, bytes = entries.reduce((sum, e) => sum + e.bytes, 0);
        live.entries = entries;
        page.fill(node, make("span", null, "Only ", make("strong", null, bySite ? page.clean(band) : page.categoryName(band)), ": " + page.bytes(bytes) + " "),
            all > entries.length
                ? make("button", {type: "button", class: "plain", onclick: () => page.set({band: null})}, "show all")
                : null);
    }

    live.update = function () {
        const series = page.series();
        if (!series) return;
        const source = live.source();
        page.choice(page.byId("source"), "source", live.sources(), source);
        page.byId("source").hidden = false;
        live.entries = makers[source](series, page.places[page.state.place]);
        for (const e of live.entries) e.category = page.tone(e.category, e.label);
        showBand(source);
        const anyPython = live.entries.some(e => e.frames.some(f => !page.isNative(f)));
        const native = live.entries.some(e => e.frames.some(page.isNative));
        page.choice(page.byId("frames"), "frames", frameChoices.slice(0, anyPython ? (native ? 3 : 2) : 0));
        page.choice(page.byId("root"), "root", roots);
        const stacks = live.entries.some(e => e.frames.length);
        page.byId("pin").hidden = source !== "moment";
        page.byId("live-about").textContent = page.whole(live.about) +
            (stacks || !live.entries.length
                    ? ""
                    : " No call stacks were recorded (GPUSPY_STACKS=none), so there is no line to name.");
        live.rows = rowsOf(live.entries);
        const {flame} = page;
        flame.compare = source === "compare";
        flame.title = live.title;
        flame.nothing = flame.compare ? "Nothing differs between the two moments." : "Nothing was live then.";
        flame.tree = flame.build(live.entries, page.state.frames);
        flame.draw();
        table();
    };
    page.parts.push(() => page.byId("pin").addEventListener("click", () => page.chart.pinMoment()));
    const whole = ["place", "layer", "by", "source", "moment", "pin", "frames", "band"];
    page.view([...whole, "root", "focus", "ink", "query"], changed => {
        if (!page.series()) return;
        if (whole.some(name => changed.has(name))) return live.update();
        if (changed.has("root")) page.choice(page.byId("root"), "root", roots);
        page.flame.draw();
        if (changed.has("query") || changed.has("ink")) table();
    });
})(gpuspyPage);
