/* Out of memory: the device's memory as a waterfall with its parts; what to do, with how much each would free; the
 * evidence of the verdict; the failing line. */
"use strict";
(function (page) {
    const make = page.make, open = new Set(), FIRST = 9;
    const greys = {
        cached: "faint",
        pools: "faint",
        pools_free: "line",
        direct: "soft",
        graphs: "soft",
        context: "faint",
        before: "faint",
        other_processes: "warn",
        unaccounted: "line",
        free: "sunk"
    };
    const colourOf = part =>
        (part.what === "tensors" ? page.categoryColour(part.category) : page.ink[greys[part.what]] || page.ink.faint);
    const textOf = part =>
        (part.what === "tensors" ? "tensors: " + page.categoryName(part.category) : page.clean(part.text));

    function detail(part) {
        const rows =
            part.detail.filter(line => line.bytes !== null || line.library || line.process || line.text || line.site)
                .slice(0, 12)
                .map(line => make("div", null,
                         make("span", {class: "n"}, line.bytes === null ? "" : page.bytes(line.bytes)),
                         make("span", null,
                             [line.library, line.text, line.process].filter(Boolean).map(
                                 text => page.clean(text) + (line.site ? ", " : "")),
                             line.site ? page.siteButton(page.siteText(line.site), page.siteCopy(line.site)) : null,
                             line.count > 1 ? make("span", {class: "faint"}, " · " + page.plural(line.count, "block"))
                                            : null)));
        if (part.detail_total > rows.length)
            rows.push(make("div", null, make("span", {class: "n"}),
                make("span", {class: "faint"}, "and " + page.count(part.detail_total - rows.length) + " more")));
        return make("div", {class: "fall-detail"}, rows);
    }

    function waterfall(oom, number) {
        const parts = oom.waterfall.filter(part => part.bytes > 0 || part.what === "free"),
              total = oom.total_bytes || 1;
        let from = 0;
        const rows = parts.map((part, i) => {
            const id = number + "/" + i, bar = document.createElement("i"), shown = open.has(id);
            bar.style.left = (100 * from) / total + "%";
            bar.style.width = (100 * part.bytes) / total + "%";
            bar.style.background = part.what === "free" ? "transparent" : colourOf(part);
            if (part.what === "free") bar.style.boxShadow = "inset 0 0 0 1.5px " + page.ink.faint;
            from += part.bytes;
            const name = part.detail.length
                ? make("button", {
                      type: "button",
                      "aria-expanded": String(shown),
                      onclick: () => {
                          if (!open.delete(id)) open.add(id);
                          draw();
                      }
                  },
                      make("span", {class: "faint", "aria-hidden": "true"}, shown ? "▾" : "▸"),
                      make("span", null, textOf(part)))
                : make("span", null, textOf(part));
            return make("div", {class: "fall-row", "data-what": part.what, "data-bytes": String(part.bytes)}, name,
                make("div", {class: "track", "aria-hidden": "true"}, bar),
                make("span", {class: "n"}, page.bytes(part.bytes)),
                make("span", {class: "n soft pct"}, page.share(part.share)), shown ? detail(part) : null);
        });
        const bar = document.createElement("i");
        bar.style.width = Math.min(100, (100 * oom.requested_bytes) / total) + "%";
        bar.style.right = "0";
        bar.style.background = page.ink.bad;
        rows.push(make("div", {class: "fall-row request"}, make("strong", null, "request"),
            make("div", {class: "track", "aria-hidden": "true"}, bar),
            make("strong", {class: "n"}, page.bytes(oom.requested_bytes)),
            make("span", {class: "n soft pct"}, page.share(oom.requested_bytes / total))));
        return [
            make("h3", null, "What held the device’s " + page.bytes(oom.total_bytes)),
            make("div", {class: "fall"}, rows)
        ];
    }

    function measures(oom) {
        if (!oom.measures.length) return null;
        return make("div", null, make("h3", null, "What would help"),
            make("table", {class: "rows", "data-table": "measures"},
                make("thead", null,
                    make("tr", null, make("th", {scope: "col"}, "measure"),
                        make("th", {class: "n", scope: "col"}, "frees"), make("th", {class: "desk", scope: "col"}, "enough"),
                        make("th", {class: "desk", scope: "col"}, "certainty"))),
                make("tbody", null,
                    oom.measures.map(
                        m => make("tr", null, make("td", null, page.sentence(m.text)),
                            make("td", {class: "n"}, m.frees_bytes === null ? "?" : page.bytes(m.frees_bytes)),
                            make("td", {class: "desk short"},
                                m.enough === null ? "unknown"
                                    : m.enough    ? "yes"
                                                  : "not by itself"),
                            make("td", {class: "desk short", title: m.refuted_by ? "wrong " + page.clean(m.refuted_by) : null},
                                m.certainty))))));
    }

    function value(key, v) {
        if (typeof v === "string") return page.sentence(v);
        if (key.endsWith("_bytes") || key.startsWith("bytes_per")) return page.bytes(v);
        if (key.endsWith("_s")) return page.seconds(v);
        if (key.endsWith("share") || key === "turnover") return page.share(v);
        return typeof v === "number" ? (Number.isInteger(v) ? page.count(v) : String(Number(v.toPrecision(4))))
                                     : String(v);
    }
    function evidence(oom) {
        const pairs = Object.entries(oom.evidence).filter(([, v]) => v !== null);
        const list = some => make("dl", {class: "pairs"},
            some.map(([key, v]) => [make("dt", null, page.capital(page.model.evidence[key])), make("dd", null, value(key, v))]));
        return make("div", null, make("h3", null, "Evidence"), list(pairs.slice(0, FIRST)),
            pairs.length > FIRST
                ? make("details", null,
                      make("summary", null, "and " + page.count(pairs.length - FIRST) + " more figures"),
                      list(pairs.slice(FIRST)))
                : null);
    }
    function failing(oom) {
        if (!oom.stack || !oom.stack.length) return null;
        const frames = oom.stack.filter(f => f.kind !== "native"), shown = frames.length ? frames : oom.stack;
        return make("div", null, make("h3", null, "Where it failed"),
            make("ol", {class: "stack"},
                shown.slice(0, 60).map(
                    f => make("li", {class: page.isLibrary(f) ? "library" : null}, page.frameText(f)))));
    }

    function one(oom, number) {
        const facts = ["Requested " + page.bytes(oom.requested_bytes) + " on " + page.where(oom) + " at " +
            page.seconds(oom.time_s)];
        if (oom.failures > 1) facts.push(page.plural(oom.failures, "failed call") + " in total");
        facts.push("cause: " + page.causeName(oom.cause) + " (" + oom.certainty +
            (oom.refuted_by ? "; wrong " + page.clean(oom.refuted_by) : "") + ")");
        return make("article", {class: "oom-one"},
            make("div", {class: "kicker"},
                make("span", {class: "tag " + (oom.fatal ? "bad" : "warn")}, page.outcome(oom)),
                make("span", null, page.whole(facts.join(" · "))),
                make("button", {class: "plain", type: "button", onclick: () => show(oom)}, "show in the chart")),
            number ? make("p", {class: "oom-verdict"}, page.sentence(page.capital(page.clean(oom.verdict, 2000))))
                   : null, /* the first is the page's title */
            oom.waterfall.length
                ? waterfall(oom, number)
                : make("p", {class: "note"}, "Not all of the device’s memory is known, so it is not divided here."),
            make("div", {class: "columns"}, measures(oom), evidence(oom), failing(oom)));
    }
    function show(oom) {
        const place = page.places.findIndex(p => page.isAt(oom, p));
        if (place < 0) return;
        if (place !== page.state.place) page.choosePlace(place);
        page.set({
            moment: page.series().time[page.indexAt(page.series(), oom.time_s)],
            pin: null,
            source: "moment",
            focus: null
        });
        page.byId("memory").scrollIntoView();
    }
    page.showOom = () => { if (page.report.oom.length) show(page.report.oom[0]); };

    let shown = 1;
    function draw() {
        const node = page.byId("oom"), list = page.report.oom;
        node.hidden = !list.length;
        if (!list.length) return;
        page.fill(node, make("div", {class: "head"}, make("h2", {id: "oom-title"}, "Out of memory")),
            list.slice(0, shown).map(one),
            list.length > shown ? make("button", {
                class: "plain",
                type: "button",
                onclick: () => {
                    shown = list.length;
                    draw();
                }
            },
                                      "show " + page.plural(list.length - shown, "more failure"))
                                : null);
    }
    page.view(["ink", "query"], draw);
})(gpuspyPage);
