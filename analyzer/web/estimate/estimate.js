/* The estimate's page: draws what `gpuspy estimate --json` prints. */
"use strict";
(function (page) {
    const make = page.make, byId = page.byId;
    const e = JSON.parse(byId("gpuspy-data").textContent);
    const phaseName = {forward_end: "End of forward", backward_end: "End of backward", step: "Optimizer step",
                       prefill: "Prefill", decode: "Decode", text: "Text encoders", denoise: "Denoising step", image: "VAE decodes"};
    const shades = {fits: "good", tight: "warn", does_not_fit: "bad"};
    const tag = (verdict, before) => make("span", {class: "tag " + shades[verdict], title: e.verdicts[verdict].words + ": " + e.verdicts[verdict].meaning},
        (before ? before + ": " : "") + e.verdicts[verdict].words);
    if (e.plan.decodes === false) { /* the model makes one pass, and no tokens one after the other */
        phaseName.prefill = "Forward pass";
        delete phaseName.decode;
    }
    const phases = Object.keys(phaseName).filter(name => e.phases[name]);
    const partName = e.part_names;
    const parts = Object.keys(partName).filter(part => e.lines.some(line => line.part === part && !line.host));
    const colour = part => `var(--${part})`;
    const bytes = page.bytes;
    const between = function (range) {
        if (range.high_bytes <= range.low_bytes) return "";
        const [low, unit] = bytes(range.low_bytes).split(" "), high = bytes(range.high_bytes);
        return (high.endsWith(" " + unit) ? low : low + " " + unit) + " – " + high;
    };
    const add = (sum, line) => ({low_bytes: sum.low_bytes + line.low_bytes, bytes: sum.bytes + line.bytes,
                                 high_bytes: sum.high_bytes + line.high_bytes});
    const sum = lines => lines.reduce(add, {low_bytes: 0, bytes: 0, high_bytes: 0});
    const inPhase = (part, phase) => sum(e.lines.filter(l => l.part === part && !l.host && l.phases.includes(phase)));
    const mostOf = part => phases.map(phase => inPhase(part, phase)).reduce((a, b) => (b.bytes > a.bytes ? b : a));

    /* ------------------------------------------------------------ the verdict */
    function facts() {
        const {plan, model} = e, served = plan.inference;
        const list = [
            ["Parameters", page.count(model.params)],
            [served ? "Weights" : "Numbers", served ? plan.weights || plan.precision : plan.precision + (e.master_weights ? " with master weights" : "")],
            served ? null : ["Optimizer", plan.optimizer + ", " + plan.step],
            ["GPUs", page.count(plan.gpus) + (plan.gpus > 1 && !served ? ", " + plan.sharding : "")],
            plan.batch ? ["Batch", page.count(plan.batch) + (plan.seq ? " × " + page.count(plan.seq) + " tokens" : "")] : null,
            ["tp", "pp", "cp", "ep"].some(n => plan[n] > 1)
                ? ["Divided", ["tp", "pp", "cp", "ep"].filter(n => plan[n] > 1).map(n => n + " " + plan[n]).concat(
                      plan.expert_tp !== plan.tp ? "expert-tp " + plan.expert_tp : []).join(", ")] : null,
            plan.adapter !== "none" ? ["Adapters", plan.adapter + ", rank " + plan.rank] : null,
            plan.checkpointing !== "none" ? ["Checkpointing", plan.checkpointing] : null,
        ];
        return make("dl", {class: "facts"}, list.filter(Boolean).map(([name, value]) => make("div", null, make("dt", null, name), make("dd", null, page.clean(value)))));
    }
    function margin(gpu) {
        const side = n => (n >= 0 ? bytes(n) + " to spare" : bytes(-n) + " too much");
        const low = gpu.verdict === "does_not_fit", end = low ? gpu.margin_high_bytes : gpu.margin_low_bytes;
        if (end === gpu.margin_bytes || (low && end < 0)) return side(gpu.margin_bytes);
        return side(gpu.margin_bytes) + ", " + side(end) + (low ? " at the low end" : " at the high end");
    }
    const gpuName = gpu => page.clean(gpu.name || "The given memory");
    function verdict() {
        const few = e.gpus.slice(0, 3);
        const range = between(e.peak);
        page.fill(byId("verdict"),
            make("div", {class: "kicker"}, make("span", null, page.clean(e.model.name || "A model of " + page.count(e.params) + " parameters")),
                few.map(gpu => tag(gpu.verdict, gpuName(gpu)))),
            make("h1", null, "needs " + bytes(e.peak.bytes) + (e.plan.gpus > 1 ? " on each GPU" : "") + (range ? " (" + range + ")" : "")),
            make("p", {class: "soft"}, "Peak at the " + e.peak.meaning + ". " + few.map(gpu => gpuName(gpu) + ", " + bytes(gpu.total_bytes) + ": " + margin(gpu) + ".").join(" ")),
            facts());
    }

    /* ------------------------------------------------------------ bars */
    function bars() {
        const limits = e.gpus.slice(0, 3);
        const scale = Math.max(...phases.map(p => e.phases[p].high_bytes), ...limits.map(g => g.total_bytes)) * 1.02;
        const at = n => (n / scale * 100).toFixed(3) + "%";
        const place = (node, left, width) => { node.style.left = at(left); if (width !== undefined) node.style.width = at(width); return node; };
        const rows = phases.map(phase => {
            const total = e.phases[phase], fill = make("span", {class: "fill"});
            fill.style.width = at(total.bytes);
            for (const part of parts) {
                const here = inPhase(part, phase);
                if (!here.bytes) continue;
                const segment = make("i", null);
                segment.style.width = (here.bytes / total.bytes * 100).toFixed(3) + "%";
                segment.style.background = colour(part);
                segment.addEventListener("pointermove", event => page.tip(event.clientX, event.clientY, null,
                    make("div", {class: "big"}, partName[part]), make("div", null, bytes(here.bytes)),
                    between(here) && make("div", {class: "soft"}, between(here))));
                segment.addEventListener("pointerleave", page.tipOff);
                fill.append(segment);
            }
            const peak = phase === e.peak.phase;
            return make("div", {class: peak ? "phase peak" : "phase"},
                make("div", {class: "name"}, phaseName[phase], peak && " · the peak"),
                make("div", {class: "track", role: "img", "aria-label": phaseName[phase] + ": " + bytes(total.bytes)}, fill,
                    total.high_bytes > total.low_bytes &&
                        place(make("span", {class: "between"}), total.low_bytes, total.high_bytes - total.low_bytes),
                    limits.map(gpu => place(make("span", {class: "limit"}), gpu.total_bytes))),
                make("div", {class: "n"}, make("b", null, bytes(total.bytes)), make("div", {class: "words"}, between(total))));
        });
        const names = make("div", {class: "limits"}, limits.map(gpu => place(
            make("span", {class: gpu.total_bytes > 0.8 * scale ? "last" : gpu.total_bytes < 0.25 * scale ? "first" : null}, (gpu.key || "limit") + " " + bytes(gpu.total_bytes)), gpu.total_bytes)));
        const inOrder = limits.map(gpu => gpu.total_bytes / scale).sort((a, b) => a - b);
        names.classList.toggle("close", inOrder.some((share, i) => i > 0 && share - inOrder[i - 1] < 0.2));
        page.fill(byId("bars"), rows, limits.length > 0 && make("div", {class: "phase marks"}, make("span"), names, make("span")));
        page.fill(byId("legend"), make("span", {class: "cats"}, parts.map(part => make("span", null, page.swatch(colour(part)), partName[part]))));
        const any = phases.some(p => e.phases[p].high_bytes > e.phases[p].low_bytes);
        byId("bars-note").textContent = any ? "Hatched: from the low to the high end." : "";
        byId("bars-note").hidden = !any;
    }

    /* ------------------------------------------------------------ lines */
    const open = new Set();
    function lineOf(line) {
        const pair = (name, text) => (text ? [make("dt", null, name), make("dd", null, page.clean(text, 2000))] : []);
        return make("div", {class: "line"},
            make("b", null, page.clean(line.name)), " " + bytes(line.bytes) + (between(line) ? " (" + between(line) + ")" : "") + (line.host ? ", in host memory" : ""),
            make("dl", {class: "pairs"}, pair("formula", line.formula), pair("source", line.source), pair("range", line.why)));
    }
    function toggle(part) {
        if (open.has(part)) open.delete(part); else open.add(part);
        table();
    }
    const shown = Object.keys(partName).filter(part => e.lines.some(line => line.part === part));
    function table() {
        const body = shown.flatMap(part => {
            const lines = e.lines.filter(line => line.part === part), here = parts.includes(part) ? mostOf(part) : sum([]);
            const row = make("tr", {class: "part", onclick: () => toggle(part)},
                make("td", null, make("span", {class: "name"}, page.swatch(colour(part)), make("button", {type: "button", "aria-expanded": String(open.has(part))}, partName[part]))),
                make("td", {class: "n"}, here.bytes ? bytes(here.bytes) : "on the host"), make("td", {class: "n soft"}, between(here)),
                phases.map(phase => make("td", {class: "n dots"}, inPhase(part, phase).bytes ? "●" : "")));
            return open.has(part) ? [row, make("tr", {class: "lines"}, make("td", {colspan: String(3 + phases.length)}, lines.map(lineOf)))] : [row];
        });
        const peak = make("tr", {class: "sum"}, make("td", null, "at the peak"), make("td", {class: "n"}, bytes(e.peak.bytes)), make("td", {class: "n"}, between(e.peak)),
            phases.map(phase => make("td", {class: "n"}, phase === e.peak.phase ? "▲" : "")));
        page.fill(byId("table"), make("table", {class: "rows"},
            make("thead", null, make("tr", null, make("th", null, "part"), make("th", {class: "n"}, "expected"), make("th", {class: "n"}, "low – high"),
                phases.map(phase => make("th", {class: "n"}, phaseName[phase].toLowerCase())))),
            make("tbody", null, body, peak)));
        byId("explain").setAttribute("aria-pressed", String(open.size === shown.length));
    }

    /* ------------------------------------------------------------ tables of the rest */
    function rows(id, heads, list) {
        page.fill(byId(id), make("table", {class: "rows"},
            make("thead", null, make("tr", null, heads.map(([name, number]) => make("th", {class: number ? "n" : null}, name)))),
            make("tbody", null, list.map(cells => make("tr", null, cells.map((cell, i) => make("td", {class: heads[i][1] ? "n" : typeof cell === "string" && cell.length > 24 ? "words" : null}, cell)))))));
    }
    /* A line ends between words, not after the hyphens of an option. */
    const unbroken = text => page.clean(text, 4000).split(" ").flatMap((word, i) => [i ? " " : "", word.length < 24 ? make("span", {class: "word"}, word) : word]);
    const copied = text => make("button", {class: "copy", type: "button", title: "Copy", onclick: () => page.copy(text)}, unbroken(text));
    /* A change of the task comes last, however much it saves. */
    const anotherTask = c => Number(c.cost_class === "result");
    function rest() {
        if (e.gpus.length > 1) {
            byId("gpus").hidden = false;
            rows("gpu-table", [["GPU"], ["memory", 1], ["needed", 1], ["margin", 1], [""]], e.gpus.map(gpu =>
                [gpuName(gpu), bytes(gpu.total_bytes), bytes(gpu.peak.bytes), margin(gpu), tag(gpu.verdict)]));
        }
        if (e.changes.length) {
            const fits = e.changes.some(c => c.verdict);
            byId("changes").hidden = false;
            rows("change-table", [["saves", 1], ["then", 1]].concat(fits ? [["", 0]] : [], [["change"], ["costs"], ["option"]]), e.changes.slice().sort((a, b) => anotherTask(a) - anotherTask(b)).map(c =>
                [bytes(c.saved.bytes), bytes(c.peak.bytes)].concat(fits ? [c.verdict ? tag(c.verdict) : ""] : [], [page.clean(c.what, 600), page.clean(c.cost, 600), copied(c.option)])));
        }
        if (e.way.length) {
            page.fill(byId("way"), make("p", {class: "way"}, "The cheapest change that makes it fit" + (e.gpus.length > 1 && e.changes_on ? " " + e.changes_on : "") + ": ", copied(e.way.map(c => c.option).join(" ")), "; then it needs " + bytes(e.way[e.way.length - 1].peak.bytes) + "."));
        }
        if (e.solve) {
            const one = (how, s) => make("p", null, how + ": ", s ? [copied(s.option), ", " + bytes(s.peak.bytes) + " (at most " + bytes(s.peak.high_bytes) + ")"] : "nothing fits");
            byId("solution").hidden = false;
            page.fill(byId("solved"), one("Expected", e.solve.likely), one("At the high end", e.solve.surely),
                e.solve.note && make("p", {class: "note"}, page.clean(e.solve.note, 2000)));
        }
        if (e.wires.length) {
            byId("wires").hidden = false;
            rows("wire-table", [["what"], ["bytes", 1], ["times", 1], ["GPUs", 1], ["over"], ["S/B: all bytes once over the link", 1], ["ring", 1], ["time", 1]], e.wires.map(w =>
                [page.clean(w.name) + ", " + w.kind, bytes(w.bytes), String(w.times), String(w.gpus), page.clean(w.link) + ", " + page.rate(w.bytes_per_s), page.seconds(w.one_pass_s), "×" + Number(w.factor.toPrecision(3)), page.seconds(w.ring_s)]));
            byId("wires-note").textContent = page.seconds(e.wires_s) + " in total, if nothing overlaps" +
                (e.compute_s ? "; the step's computation takes " + page.seconds(e.compute_s) + " at the GPU’s full rate." : ".");
        }
        if (e.notes.length) {
            byId("notes").hidden = false;
            page.fill(byId("note-list"), e.notes.map(note => make("li", null, page.clean(note, 2000))));
        }
        const sections = [["phases", "When"], ["lines", "What for"], ["gpus", "GPUs"], ["solution", "Solved"], ["changes", "Changes"], ["wires", "Transfers"], ["notes", "Assumed"]];
        page.fill(byId("nav"), sections.filter(([id]) => !byId(id).hidden).map(([id, name]) => make("a", {href: "#" + id}, name)));
        page.fill(byId("foot"), make("span", null, page.clean(e.command || "gpuspy estimate", 2000)));
    }

    byId("explain").addEventListener("click", () => {
        const all = open.size === shown.length;
        open.clear();
        if (!all) shown.forEach(part => open.add(part));
        table();
    });
    if ("explain" in byId("gpuspy-data").dataset) shown.forEach(part => open.add(part));
    page.followTheme();
    verdict();
    bars();
    table();
    rest();
    page.ready = true;
})(gpuspyPage);
