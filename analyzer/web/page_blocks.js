/* The single allocations of a line, at a moment of which there is an address map: the peak and the failures. */
"use strict";
(function (page) {
    const blocks = page.blocks = {}, make = page.make, MOST = 12;

    function mapOf(source) {
        const place = page.places[page.state.place];
        return page.model.maps.find(map => map.at === source && map.process === place.process &&
            map.device === place.device && map.tensors === (page.state.layer === "tensor")) || null;
    }
    const labels = new Map(); /* of the page's stacks */
    function labelOf(stack) {
        if (!labels.has(stack)) labels.set(stack, page.model.site(stack));
        return labels.get(stack);
    }

    /* The largest first; null: the page has no single allocations of this moment. */
    blocks.of = function (source, label) {
        const map = mapOf(source);
        if (!map) return null;
        if (!map.byLabel) {
            map.byLabel = new Map();
            for (const segment of map.segments) {
                for (const block of segment.blocks) {
                    if (block.pending || block.merged) continue;
                    const at = labelOf(block.stack);
                    if (!map.byLabel.has(at)) map.byLabel.set(at, []);
                    map.byLabel.get(at).push(block);
                }
            }
            for (const list of map.byLabel.values()) list.sort((a, b) => b.bytes - a.bytes);
        }
        return map.byLabel.get(label) || [];
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
    blocks.under = function (source, label) {
        const list = blocks.of(source, label);
        if (!list || !list.length) return null;
        const node = make("details", {class: "blocks", open: open.has(label)},
            make("summary", null, page.plural(list.length, "single allocation")));
        const fill = () => {
            if (node.children.length > 1) return;
            node.append(make("ul", null, list.slice(0, MOST).map(one)));
            if (list.length > MOST)
                node.append(make("p", {class: "soft"}, "and " + page.count(list.length - MOST) + " smaller ones"));
        };
        if (node.open) fill();
        node.addEventListener("toggle", event => {
            if (event.target !== node) return;
            if (node.open) { open.add(label); fill(); } else open.delete(label);
        });
        return node;
    };
})(gpuspyPage);
