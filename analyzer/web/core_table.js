/* Tables: sorted by a click on a heading, filtered by the search box, cut to the first rows. */
"use strict";
(function (page) {
    const sorts = new Map(), whole = new Set();

    /* columns: [{key, words, n: right aligned, value(row): sorted by, null not; cell(row): text or node; class}];
     * text(row): what the filter searches; sort: the column at first; limit: rows at first. */
    page.table = function (node, {id, columns, rows, sort, limit, text, empty}) {
        const {make} = page, query = page.state.query.trim();
        const order = sorts.get(id) || {key: sort, down: true};
        const column = columns.find(c => c.key === order.key) || columns[0];
        let list = query && text ? rows.filter(row => page.matches(text(row))) : rows.slice();
        if (sort !== null || sorts.has(id)) {
            const sign = order.down ? -1 : 1;
            list.sort((a, b) => sign * compare(column.value(a), column.value(b)));
        }
        const all = list.length, cut = whole.has(id) ? 2000 : limit || 20;
        list = list.slice(0, cut);
        const again = () => page.keepFocus(() => page.table(node, {id, columns, rows, sort, limit, text, empty}));
        const head =
            columns.map(c => make("th", {
                class: [c.n ? "n" : "", c.class || ""].join(" ").trim() || null,
                scope: "col",
                "aria-sort":
                    (sort !== null || sorts.has(id)) && c === column ? (order.down ? "descending" : "ascending") : null,
            },
                            c.value && c.words ? make("button", {
                                type: "button",
                                onclick: () => {
                                    sorts.set(id, {key: c.key, down: order.key === c.key ? !order.down : Boolean(c.n)});
                                    again();
                                }
                            },
                                                     c.words)
                                               : c.words));
        const body = list.map(
            row => make("tr", null,
                columns.map(
                    c => make("td", {class: [c.n ? "n" : "", c.class || ""].join(" ").trim() || null}, c.cell(row)))));
        page.fill(node,
            all ? make("div", {class: "wrap"},
                      make("table", {class: columns.some(c => c.class) ? "rows" : "rows narrow", "data-table": id},
                          make("thead", null, make("tr", null, head)), make("tbody", null, body)))
                : make("p", {class: "empty"},
                      query && rows.length
                          ? ["None of " + page.plural(rows.length, "row") + " has “", page.clean(query), "” in it."]
                          : empty || "Nothing."),
            all > list.length ? make("button", {
                class: "plain",
                type: "button",
                onclick: () => {
                    whole.add(id);
                    again();
                }
            },
                                    list.length < 2000 && all > 2000 ? "show 2,000 of " + page.count(all)
                                                                     : "show all " + page.count(all))
                              : null);
    };
    function compare(a, b) {
        const none = v => v === null || v === undefined || (typeof v === "number" && isNaN(v));
        if (none(a) || none(b)) return none(a) - none(b) ? (none(a) ? -1 : 1) : 0;
        return typeof a === "string" ? a.localeCompare(String(b)) : Number(a) - Number(b);
    }

    page.setQuery = function (query) {
        page.byId("search").value = query;
        page.set({query});
    };
    page.parts.push(function () {
        const box = page.byId("search");
        box.value = page.state.query;
        let timer = 0;
        box.addEventListener("input", () => {
            clearTimeout(timer);
            timer = setTimeout(() => page.set({query: box.value}), 60);
        });
    });
    page.view(["query"], () => {
        if (page.byId("search").value !== page.state.query) page.byId("search").value = page.state.query;
    });
})(gpuspyPage);
