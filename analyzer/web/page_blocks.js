/* The single allocations of a line: at the peak and at failures those of the address map, which has all of them; at any
 * other moment the largest ones of the larger call paths. */
"use strict";
(function (page) {
    const blocks = page.blocks = {}, make = page.make, MOST = 12;

    function mapOf(source) {
        const place = page.places[page.state.place];
        return page.model.maps.find(map => map.at === source && map.process === place.process &&
            map.device === place.device && map.tensors === (page.state.layer === "tensor")) || null;
    }

    const keys = new Map(); /* by stack: the table's row to which it belongs */
    function keyOf(stack, label) {
        const at = stack + "\0" + label;
        if (!keys.has(at)) keys.set(at, page.live.rowKey(label, page.model.frames(stack)));
        return keys.get(at);
    }
    function byRow(list) {
        const rows = new Map();
        for (const [block, key] of list) {
            if (!rows.has(key)) rows.set(key, []);
            rows.get(key).push(block);
        }
        for (const row of rows.values()) row.sort((a, b) => b.bytes - a.bytes);
        return rows;
    }
    function ofMap(map) {
        if (!map.byRow) {
            const all = map.segments.flatMap(s => s.blocks.filter(b => !b.pending && !b.merged));
            map.byRow = byRow(all.map(b => [b, keyOf(b.stack, page.model.site(b.stack))]));
        }
        return map.byRow;
    }
    let last = {};
    function ofMoment(series, i) {
        if (last.series !== series || last.i !== i) {
            const all = page.model.singles(series, i);
            last = {series, i, byRow: byRow(all.map(b => [b, keyOf(b.stack, b.line.label)]))};
        }
        return last.byRow;
    }

    /* Those of a row, the largest first, and whether they are all. */
    blocks.of = function (source, row) {
        const map = mapOf(source), series = page.series();
        if (map) return {list: ofMap(map).get(row.key) || [], all: true};
        const i = page.live.index(source, series);
        if (i === null) return {list: [], all: false};
        const list = (ofMoment(series, i).get(row.key) || [])
                         .filter(b => row.categories.has(page.tone(b.line.category, b.line.label)))
                         .slice(0, MOST);
        return {list, all: list.length >= row.count};
    };

    /* Lines of the program that the recording has: "train.py:12" → its text. */
    let texts = null;
    function sourceOf(frame) {
        if (!texts) {
            texts = new Map();
            for (const one of [...page.report.oom, ...page.report.growth])
                for (const line of one.source || []) texts.set(line.file + ":" + line.line, line.text);
        }
        const text = texts.get(frame.file + ":" + frame.line);
        return text === undefined ? null : make("code", {class: "soft"}, page.clean(text.trim()));
    }

    function callPath(stack) {
        const frames = page.model.frames(stack).filter(f => !page.isNative(f) || page.state.frames === "native");
        const shown = page.state.frames === "yours" ? frames.filter(f => !page.isPlumbing(f)) : frames;
        return make("ol", {class: "path"}, (shown.length ? shown : frames).map(
            f => make("li", null, page.frameText(f), " ", sourceOf(f))));
    }
    function one(block) {
        const span = page.series().time[page.series().n - 1];
        const words = [
            page.bytes(block.bytes),
            block.allocated === null ? null : "allocated at " + page.moment(block.allocated, span),
            block.allocated === null   ? null
                : block.lived === null ? "never freed"
                                       : "freed after " + page.seconds(block.lived),
        ];
        return make("li", null, make("details", null,
            make("summary", null, words.filter(Boolean).join(" · ")), callPath(block.stack)));
    }
    const open = new Set();
    /* A list that opens below a row. */
    blocks.under = function (source, row) {
        const {list, all} = blocks.of(source, row), count = all ? list.length : row.count;
        if (!list.length) return null;
        const node = make("details", {class: "blocks", open: open.has(row.key)},
            make("summary", null, page.plural(count, "single allocation")));
        const fill = () => {
            if (node.children.length > 1) return;
            node.append(make("ul", null, list.slice(0, MOST).map(one)));
            const more = count - Math.min(MOST, list.length);
            if (more > 0) node.append(make("p", {class: "soft"}, "and " + page.count(more) + (all ? " smaller ones" : " more")));
        };
        if (node.open) fill();
        node.addEventListener("toggle", event => {
            if (event.target !== node) return;
            if (node.open) { open.add(row.key); fill(); } else open.delete(row.key);
        });
        return node;
    };
})(gpuspyPage);
