/* The top of the page: warnings, the verdict, what to do, facts about the run; the choice of process and device. */
"use strict";
(function (page) {
    const make = page.make;
    const topics = {
        oom: "Out of memory",
        leak: "Leak",
        sync: "Waiting",
        transfer: "Copies",
        fragmentation: "Fragmentation",
        churn: "Churn",
        recording: "Recording"
    };
    page.causeName = cause => page.model.causes[cause] || page.clean(cause);

    page.placeName = function (place) {
        const processes = page.report.run.processes, many = processes.length > 1, process = page.processOf(place);
        const device = place.device < 0 ? "host memory" : "GPU " + place.device;
        if (place.rank !== null && place.rank !== undefined) return "rank " + place.rank + " · " + device;
        return many ? "pid " + process.pid + " · " + device : device;
    };
    /* As in the terminal: the GPU memory that has the largest share of its GPU. CUDA's level comes first, and wins if
     * both are equal. */
    const fullest = function () {
        const share = p => {
            const gpu = page.device(p.device);
            return gpu && gpu.total_bytes ? p.bytes / gpu.total_bytes : 0;
        };
        return page.report.peak.filter(p => (p.layer === "device" || p.layer === "tensor") && p.device >= 0 && p.bytes > 0)
            .reduce((best, p) => (!best || share(p) > share(best) || (share(p) === share(best) && p.bytes > best.bytes) ? p : best), null);
    };
    const where = entry => {
        const rank = entry.rank !== null && entry.rank !== undefined ? "rank " + entry.rank
            : page.report.run.processes.length > 1                   ? "pid " + entry.pid
                                                                     : null;
        return [entry.device >= 0 ? "GPU " + entry.device : "host", rank].filter(Boolean).join(" · ");
    };
    page.where = where;

    /* From this time on a bounded recording has all rows; before it, all at peaks and failures. 0: from the start. */
    page.keptFrom = () => Math.max(0, ...page.report.run.processes.map(p => p.kept_from_s || 0));

    /* Several warnings take one line, so that the verdict stays near the top. */
    function folded(list) {
        if (list.length < 2) return list.map(text => make("li", null, text));
        const [first, ...rest] = list;
        return make("li", null, make("details", null,
            make("summary", null, make("span", {class: "first"}, first),
                make("span", {class: "more"}, "and " + page.plural(rest.length, "more note"))),
            rest.map(text => make("p", null, text))));
    }

    function warnings() {
        const {run, devices} = page.report, list = [];
        if (run.lost_events) {
            list.push(page.plural(run.lost_events, "event was", "events were") + " lost" +
                (run.lost_first_s === null ? "" : ", the first at " + page.seconds(run.lost_first_s)) +
                ": figures from then on are too low, or too high if a free is missing.");
        }
        run.notes.map(note => page.clean(note, 2000))
            .forEach(note => list.push((note.startsWith("gpuspy") ? note : page.capital(note)).replace(/[^.:]$/, "$&.")));
        if (page.keptFrom()) {
            list.push("Before " + page.seconds(page.keptFrom()) + ", the charts of this page show only the rows " +
                "that are left: except at peaks and failures, they are too low. gpuspy timeline draws all of it.");
        }
        if (run.processes.some(p => p.recording))
            list.push("The program is still recording: the page shows what was recorded when it was written.");
        if (devices.some(d => d.simulated)) {
            list.push(
                "Simulated GPU: no kernel ran. Sizes are those requested; values and times have no meaning.");
        }
        const wrong = page.report.checks.find(check => check.mismatches > 0);
        if (wrong) {
            list.push("gpuspy’s total and PyTorch’s own differ at " + page.count(wrong.mismatches) + " of " +
                page.plural(wrong.events, "event") + ", at the last by " +
                page.bytes(Math.abs(wrong.last_difference_bytes)) + ": figures of tensors can be wrong.");
        }
        const begin = text => (/^[a-z]+[ ,]/.test(text) ? page.capital(text) : text);
        const calm = page.report.preallocations.concat(page.report.rank_findings)
                         .map(f => [page.sentence(begin(f.text)), f.advice ? [". ", page.sentence(begin(f.advice))] : null, "."]);
        const node = page.byId("warnings");
        page.fill(node, folded(list), calm.map(text => make("li", {class: "calm"}, text)));
        node.hidden = !list.length && !calm.length;
    }

    function heaviest() {
        const peaks = page.report.peak.filter(p => p.device >= 0),
              most = layer => peaks.filter(p => p.layer === layer).sort((a, b) => b.bytes - a.bytes)[0];
        return {
            tensor: most("tensor"),
            device: most("device"),
            any: page.report.peak.slice().sort((a, b) => b.bytes - a.bytes)[0]
        };
    }

    function verdictOom(oom) {
        const free = oom.free_bytes === null ? ""
                                             : ", with " + page.bytes(oom.free_bytes) +
                (oom.total_bytes ? " of " + page.bytes(oom.total_bytes) : "") + " free";
        const asked = oom.evidence.asked_bytes;
        const segment = asked > oom.requested_bytes ? " (" + page.bytes(asked) + " from CUDA)" : "";
        const [claim, evidence] = page.clean(oom.verdict, 2000).split(". Evidence: ");
        return {
            tags: [
                make("span", {class: "tag " + (oom.fatal ? "bad" : "warn")},
                    oom.outcome === "retried" ? "Succeeded on a retry"
                        : page.outcome(oom) === "fatal" ? "Out of memory"
                                                        : "Out of memory, " + page.outcome(oom)),
                make("span", null,
                    where(oom) + " at " + page.seconds(oom.time_s) + (oom.step ? ", in step " + page.count(oom.step) : "")),
                make("span", null, "cause: " + page.causeName(oom.cause))
            ],
            title: page.whole(claim),
            more: [
                page.whole("Requested " + page.bytes(oom.requested_bytes) + segment + free), oom.site ? ", at " : "",
                oom.site ? page.siteButton(page.siteText(oom.site), page.siteCopy(oom.site)) : "",
                evidence ? ". Evidence: " + evidence + "." : ""
            ],
        };
    }
    const ended = process => make("span", {class: "tag bad"},
        (process.exception ? String : page.capital)(page.clean(process.failure)));
    function verdictPeak() {
        const {tensor, any} = heaviest(), peak = fullest() || any, {outcome, outcome_hint: hint} = page.report.run;
        const failed = page.report.run.processes.find(p => p.failure);
        if (!peak && page.report.run.why_no_memory) {
            return {
                tags: [make("span", {class: "tag warn"}, page.report.run.outcome)],
                title: page.capital(page.clean(page.report.run.why_no_memory)),
                more: ["The copies, waits and ranges below are known."],
            };
        }
        if (!peak) {
            return {
                tags: failed ? [ended(failed), make("span", {class: "tag warn"}, outcome)]
                             : [make("span", {class: "tag"}, "Nothing to show")],
                title: "No GPU memory was allocated while this was recorded",
                more: hint ? [hint] : [
                    page.report.run.events
                        ? "CUDA calls were recorded, but none that allocated memory: did the program stay on the CPU? "
                        : "No CUDA call was recorded: did the program use a GPU at all? ",
                    make("code", null, "gpuspy doctor"), " shows what can be recorded here."
                ],
            };
        }
        const info = peak.device >= 0 ? page.device(peak.device) : null, total = info && info.total_bytes;
        const of = total ? " of " + page.bytes(total) + " (" + page.share(peak.bytes / total) + ")" : "";
        const place = peak.device >= 0 ? " on " + where(peak) : " of host memory";
        const grows = page.report.growth[0];
        const only = page.report.run.processes.length === 1 && page.report.run.processes[0];
        const once = page.isMoment();
        const unseen = only && !failed && !only.complete && !only.recording && !only.kernel;
        return {
            tags: [
                unseen ? make("span", {class: "tag warn"}, "Killed, crashed or called _exit") : null,
                failed ? ended(failed) : null,
                make("span", {class: "tag " + (failed || unseen || !/did not run out/.test(outcome) ? "warn" : "good")}, outcome),
                grows ? make("span", {class: "tag warn"}, "memory grows") : null
            ],
            title: page.whole(once ? page.bytes(peak.bytes) + of + " live" + place
                                   : "Peak " + page.bytes(peak.bytes) + of + place + ", at " + page.seconds(peak.time_s)),
            more: hint ? [hint] : tensor && tensor !== peak
                ? [page.whole("Tensors" + (once ? ": " : " peaked at ") + page.bytes(tensor.bytes) +
                      (once ? "" : " at " + page.seconds(tensor.time_s)) + ", in " + page.plural(tensor.count, "block") + ".")]
                : [],
        };
    }

    function todo() {
        const oom = page.report.oom[0], seen = new Set(), rows = [];
        const add = (topic, text) => {
            if (!text || seen.has(text)) return;
            seen.add(text);
            const label = topic && topic !== topics.oom ? make("span", {class: "soft"}, topic + " · ") : null;
            /* a sentence begins with a capital, a name does not change */
            const words = label || !/^[a-z]+[ ,]/.test(text) ? text : page.capital(text);
            rows.push(make("li", null, make("span", null, label, page.sentence(words))));
        };
        if (oom) oom.measures.forEach(m => add(topics.oom, m.text));
        page.report.advice.filter(a => !oom || a.topic !== "oom") /* the measures of the failure that is shown are above */
            .forEach(a => add(topics[a.topic] || page.clean(a.topic), a.text));
        if (!rows.length) return null;
        const first = rows.slice(0, 4), rest = rows.slice(4);
        return make("div", {class: "todo"}, make("h3", null, "What to do"), make("ol", null, first),
            rest.length ? make("details", null, make("summary", null, "and " + page.count(rest.length) + " more"),
                              make("ol", {start: 5}, rest))
                        : null);
    }

    /* "train.py --epochs 3": no folders, and no interpreter before a script. */
    function shortCommand(command) {
        const words = command.split(" ").map((word, i) => (i < 2 && word[0] !== "-" ? page.base(word) : word));
        return page.clean(words.slice(/^python/.test(words[0]) && /\.py$/.test(words[1] || "") ? 1 : 0).join(" "));
    }

    function facts() {
        const {run, devices} = page.report, first = run.processes[0] || {}, list = [];
        const add = (name, value, wide) => {
            if (value)
                list.push(make("div", wide ? {class: "wide", title: wide} : null, make("dt", null, name),
                               make("dd", null, value)));
        };
        const {tensor, device} = heaviest(), once = page.isMoment();
        const names = Array.from(
            new Set(devices.map(d => (d.name || "unknown") + (d.total_bytes ? ", " + page.bytes(d.total_bytes) : ""))));
        const gpus = page.clean((devices.length > 1 ? devices.length + " × " : "") + names.join("; "));
        if (devices.some(d => d.name || d.total_bytes)) /* no vendor: the command needs the room */
            add(devices.length > 1 ? "GPUs" : "GPU",
                make("span", {title: gpus}, gpus.replace(/(^|[×;] )NVIDIA (GeForce )?(?=\S)/g, "$1")));
        if (tensor) add(once ? "Live in tensors" : "Tensor peak", page.bytes(tensor.bytes));
        const attached = run.processes.some(p => p.attached_after_s > 0);
        if (device) add(once ? "CUDA allocations" : attached ? "CUDA peak since attached" : "CUDA peak", page.bytes(device.bytes));
        if (!page.isTimeless()) add("Ran for", page.seconds(run.duration_s));
        if (run.processes.length > 1) add("Processes", page.count(run.processes.length));
        const steps = page.report.steps[0];
        if (steps) add("Steps", page.count(steps.n) + " × " + page.seconds(steps.median_s));
        if (page.report.sync_share > 0) add("Waits", page.share(page.report.sync_share));
        if (first.torch_version) add("PyTorch", page.clean(first.torch_version.split("+")[0]));
        const command = first.kernel ? "Jupyter kernel" : shortCommand(run.command || "");
        if (run.command) add("Command", make("code", null, command), page.clean(run.command));
        return make("dl", {class: "facts"}, list);
    }

    function head() {
        const oom = page.report.oom[0], said = oom ? verdictOom(oom) : verdictPeak();
        page.fill(page.byId("verdict"), make("div", {class: "kicker"}, said.tags), make("h1", {class: said.title.length > 160 ? "long" : null}, page.breakable(said.title)),
            said.more.length ? make("p", {class: "soft"}, said.more) : null, todo());
        page.fill(page.byId("facts"), facts());
        const file = page.report.run.processes.length ? page.base(page.report.run.processes[0].database) : "";
        document.title = page.clean((oom && oom.fatal ? "OOM: " : "") + (file || "recording")) + " · gpuspy";
    }

    /* ------------------------------------------------------------ places */
    /* Memories of one kind on one scale, so that a rank that holds more than the others stands out. */
    function spark(series, most) {
        const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg"),
              path = document.createElementNS("http://www.w3.org/2000/svg", "path");
        svg.setAttribute("viewBox", "0 0 100 26");
        svg.setAttribute("preserveAspectRatio", "none");
        svg.setAttribute("aria-hidden", "true");
        const from = series.time[0], span = series.time[series.n - 1] - from || 1, tops = new Array(101).fill(0);
        for (let i = 0; i < series.n; i++) {
            const x = Math.round(((series.time[i] - from) / span) * 100);
            tops[x] = Math.max(tops[x], series.high[i]);
        }
        for (let x = 1; x <= 100; x++) if (!tops[x]) tops[x] = tops[x - 1];
        path.setAttribute(
            "d", "M0,26" + tops.map((v, x) => `L${x},${(26 - (v / most) * 25).toFixed(1)}`).join("") + "L100,26Z");
        svg.append(path);
        return svg;
    }
    function places() {
        const node = page.byId("places");
        node.hidden = page.places.length < 2;
        const first = place => page.model.series[place.layers[page.layersOf(place)[0]]], most = {};
        const kind = series => series.layer + (series.device < 0);
        for (const series of page.places.map(first))
            most[kind(series)] = Math.max(most[kind(series)] || 1, series.high[page.peakIndex(series)]);
        page.fill(node, page.places.map((place, i) => {
            const layer = page.layersOf(place)[0], series = first(place),
                  oom = page.report.oom.find(o => o.fatal && page.isAt(o, place));
            return make("button", {
                type: "button",
                "aria-pressed": String(i === page.state.place),
                "data-place": String(i),
                onclick: () => page.choosePlace(i)
            },
                make("span", {class: "who"}, make("span", null, page.placeName(place)),
                    oom ? make("span", {class: "tag bad"}, "OOM") : null),
                spark(series, most[kind(series)]),
                make("span", {class: "what"},
                    "peak " + page.bytes(series.high[page.peakIndex(series)]) +
                        (layer === "tensor" ? " in tensors" : "")));
        }));
    }

    /* ------------------------------------------------------------ the chart's switches */
    const layerWords = {
        tensor: "Tensors",
        device: "CUDA allocations",
        pinned: "Pinned",
        host: "Host",
        shared: "Shared",
        graph: "Graphs"
    };
    page.layerWords = layer => layerWords[layer] || page.clean(layer);
    function switches() {
        const place = page.places[page.state.place];
        if (!place) return;
        const total = place.device >= 0 && page.device(place.device) && page.device(place.device).total_bytes;
        page.choice(page.byId("layer"), "layer", page.layersOf(place).map(layer => [layer, page.layerWords(layer)]));
        page.choice(page.byId("by"), "by", [["category", "By category"], ["site", "By line"]], page.stackedBy());
        page.choice(page.byId("scale"), "scale", total ? [["fit", "Fit"], ["device", "Whole device"]] : []);
        page.byId("resolution").textContent =
            page.model.resolution && page.model.resolution.text ? page.clean(page.model.resolution.text, 2000) : "";
        page.byId("signs").textContent = page.series() ? page.whole(page.lanes.key(page.series())) : "";
        page.byId("memory-title").textContent =
            "Memory over time" + (page.places.length > 1 ? ": " + page.placeName(place) : "");
    }

    function nav() {
        const sections = [
            ["verdict", "Verdict"], ["memory", "Memory"], ["live", "What was live"], ["oom", "Out of memory"],
            ["heap", "Address map"], ["tables", "Tables"]
        ];
        page.fill(page.byId("nav"), sections.filter(([id]) => !page.byId(id).hidden).map(([id, words]) => make("a", {
            href: "#" + id, onclick: event => { event.preventDefault(); page.byId(id).scrollIntoView(); },
        }, words)));
    }

    page.parts.push(function () {
        page.byId("live").hidden = !page.places.length;
        page.byId("memory").hidden = !page.places.length || page.lacks("history"); /* one moment is no curve */
        warnings();
        head();
        const run = page.report.run, first = run.processes[0] || {}, python = first.python_version;
        const recorded = first.start_s
            ? " · recorded " + new Date(first.start_s * 1000).toISOString().slice(0, 16).replace("T", " ") + " UTC" : "";
        page.fill(page.byId("foot"),
            make("div", null,
                "gpuspy " + page.clean(page.model.gpuspy || "") +
                    (page.model.source ? " · " + page.clean(page.model.source) : "") + recorded +
                    (python ? " · Python " + page.clean(python) : "") + " · " + page.plural(run.events, "event")),
            make("div", null, "All of this page is in this one file: it opens offline, without network requests."));
    });
    page.view(["place", "ink"], places);
    page.view(["place", "layer", "by", "scale"], switches);
    page.view(["place", "ink"], () => setTimeout(nav, 0)); /* after the other views have shown whether they have content */
})(gpuspyPage);
