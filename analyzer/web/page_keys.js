/* Keys for the whole page, and the help that lists them: one table for both. */
"use strict";
(function (page) {
    const goto = id => { const node = page.byId(id); if (!node.hidden) node.scrollIntoView(); };
    const moment = (by, pinned) => page.move(by, pinned);
    const keys = [
        {
            keys: ["ArrowLeft", "ArrowRight"],
            show: "← →",
            words: "move the moment; with Shift ten at once",
            act: event => moment(
                (event.key === "ArrowLeft" ? -1 : 1) * (event.shiftKey ? 10 : 1), page.state.source === "compare")
        },
        {
            keys: ["+", "="],
            show: "+",
            words: "zoom in at the moment",
            act: () => page.chart.series && page.chart.zoomBy(0.6, page.state.moment)
        },
        {
            keys: ["-", "_"],
            show: "−",
            words: "zoom out",
            act: () => page.chart.series && page.chart.zoomBy(1 / 0.6, page.state.moment)
        },
        {keys: ["0"], show: "0", words: "the whole run", act: () => page.set({zoom: null})},
        {
            keys: ["p"],
            show: "p",
            words: "the peak",
            act: () => {
                if (page.series()) {
                    page.set({
                        moment: page.series().time[page.peakIndex(page.series())],
                        pin: null,
                        source: "peak",
                        focus: null
                    });
                    goto("memory");
                }
            }
        },
        {keys: ["o"], show: "o", words: "the out-of-memory error", act: () => page.showOom()},
        {
            keys: ["m"],
            show: "m",
            words: "pin the moment, to compare with the next one",
            act: () => page.chart.pinMoment()
        },
        {
            keys: ["c"],
            show: "c",
            words: "stack by category or by line",
            act: () => page.set({by: page.stackedBy() === "category" ? "site" : "category"})
        },
        {
            keys: ["r"],
            show: "r",
            words: "flame graph: root on top or at the bottom",
            act: () => page.set({root: page.state.root === "top" ? "bottom" : "top"})
        },
        {
            keys: ["t"],
            show: "t",
            words: "the next table; with Shift the one before",
            act: () => {
                page.stepTable(1);
                goto("tables");
            }
        },
        {
            keys: ["T"],
            act: () => {
                page.stepTable(-1);
                goto("tables");
            }
        },
        {keys: ["/"], show: "/", words: "filter everything", act: () => page.byId("search").focus()},
        {
            keys: ["l"],
            show: "l",
            words: "copy a link to this view",
            act: () => page.copy(location.href.split("#")[0] + page.link())
        },
        {keys: ["d"], show: "d", words: "light or dark", act: () => page.toggleTheme()},
        {keys: ["?"], show: "?", words: "this help", act: () => help()},
        {
            keys: ["Escape"],
            show: "Esc",
            words: "back: from the flame graph’s zoom, the chart’s, the moment",
            act: () => page.reset()
        },
    ];

    function help() {
        const dialog = page.byId("help");
        if (dialog.open) dialog.close(); else dialog.showModal();
    }
    function listen(event) {
        if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
        const target = event.target, writing = target.matches && target.matches("input, select, textarea");
        if (writing) {
            if (event.key === "Escape") { page.setQuery(""); target.blur(); }
            return;
        }
        if (page.byId("help").open && event.key !== "?") return;
        if (event.key.startsWith("Arrow") && target.closest && target.closest(".wrap, .stack")) return; /* it scrolls */
        const entry = keys.find(k => k.keys.includes(event.key));
        if (!entry) return;
        event.preventDefault();
        entry.act(event);
    }
    page.parts.push(function () {
        const {make} = page;
        addEventListener("keydown", listen);
        page.byId("theme").addEventListener("click", page.toggleTheme);
        page.byId("help-open").addEventListener("click", help);
        page.fill(page.byId("help"), make("h2", {id: "help-title"}, "Keys"),
            make("dl", {class: "pairs"},
                keys.filter(k => k.show)
                    .map(k => [make("dt", null, make("kbd", null, k.show)), make("dd", null, k.words)])),
            make("p", {class: "note"},
                "In the chart: click or tap a band or a moment; Shift-click another to compare the two; wheel, pinch or ",
                "drag to zoom, drag to move, double click for all. In the legend: a click hides or shows, with Shift it shows only that ",
                "one. A link that includes the part after # opens the same view."),
            make("p", null, make("button", {class: "plain", type: "button", onclick: help}, "close")));
    });
})(gpuspyPage);
