/* The address map: PyTorch's segments and the blocks in them. One scale for all, so that areas can be compared: each
 * row has the same number of bytes, a large segment takes several rows, small ones share one. */
"use strict";
(function (page) {
    const make = page.make, BAR = 15, GAP = 4, LABEL = 170, ROWS = 44, MOST_ROWS = 260;
    const heap = page.heap = {boxes: [], rows: 0};

    heap.maps = () => page.model.maps.filter(map => {
        const place = page.places[page.state.place];
        return place && map.process === place.process && map.device === place.device && map.segments.length;
    });
    const used = segment => segment.blocks.reduce((sum, b) => sum + (b.pending ? 0 : b.bytes), 0);
    heap.holes = function (segment) {
        const out = [];
        let at = 0;
        for (const b of segment.blocks.slice().sort((x, y) => x.offset - y.offset)) {
            if (b.offset > at) out.push({offset: at, bytes: b.offset - at});
            at = Math.max(at, b.offset + b.bytes);
        }
        if (at < segment.bytes) out.push({offset: at, bytes: segment.bytes - at});
        return out;
    };

    function measure(map) {
        if (map.measured) return map.measured;
        const segments = map.segments.map(s => ({segment: s, bytes: s.bytes, used: used(s), holes: heap.holes(s)}));
        const all = segments.reduce((sum, s) => sum + s.bytes, 0), inUse = segments.reduce((sum, s) => sum + s.used, 0);
        const largest = segments.reduce((most, s) => s.holes.reduce((m, h) => Math.max(m, h.bytes), most), 0);
        map.measured = {segments, all, used: inUse, largest};
        return map.measured;
    }

    const orders = {
        address: (a, b) => a.segment.address - b.segment.address,
        size: (a, b) => b.bytes - a.bytes || a.segment.address - b.segment.address,
        empty: (a, b) => b.bytes - b.used - (a.bytes - a.used) || a.segment.address - b.segment.address,
    };

    /* Bytes per row: the power of two with which the map takes about so many rows. It is larger if the largest segment
     * then fits into one row and some rows remain. */
    function rowBytes(all, largest, zoom) {
        const power = bytes => Math.pow(2, Math.ceil(Math.log2(Math.max(bytes, 1))));
        const wanted = power(all / ROWS), alone = power(largest),
              whole = alone > wanted && all / alone >= 3 ? alone : wanted;
        return Math.max(4096, whole * Math.pow(2, zoom));
    }

    /* Rows: [{pieces: [{of, from, to, left}], label}]; `left` in bytes. */
    function rowsOf(map, order, bytes) {
        const rows = [];
        let shared = null;
        for (const s of measure(map).segments.slice().sort(orders[order] || orders.address)) {
            if (s.bytes <= bytes / 2) {
                const gap = bytes / 300;
                if (!shared || shared.end + gap + s.bytes > bytes || shared.pool !== s.segment.pool) {
                    shared = {pieces: [], end: 0, list: [], pool: s.segment.pool};
                    rows.push(shared);
                }
                const left = shared.end ? shared.end + gap : 0;
                shared.pieces.push({of: s, from: 0, to: s.bytes, left});
                shared.end = left + s.bytes;
                shared.list.push(s);
                continue;
            }
            shared = null;
            for (let from = 0; from < s.bytes; from += bytes) {
                rows.push(
                    {pieces: [{of: s, from, to: Math.min(s.bytes, from + bytes), left: 0}], list: from ? [] : [s]});
            }
        }
        return rows;
    }
    function labelOf(row) {
        if (!row.list.length) return "";
        const bytes = row.list.reduce((sum, s) => sum + s.bytes, 0),
              inUse = row.list.reduce((sum, s) => sum + s.used, 0);
        const n = row.list.length, alike = n > 1 && row.list.every(s => s.bytes === row.list[0].bytes);
        return (alike ? n + " × " + page.bytes(bytes / n) : (n > 1 ? n + " in " : "") + page.bytes(bytes)) + " · " +
            page.share(inUse / bytes);
    }

    function drawMap(map) {
        const canvas = page.byId("map").querySelector("canvas"), width = page.byId("map").clientWidth,
              small = width < 560;
        const label = small ? 0 : LABEL,
              bytes = rowBytes(
                  measure(map).all, measure(map).segments.reduce((m, s) => Math.max(m, s.bytes), 0), heap.zoom || 0),
              pitch = BAR + GAP + (small ? 12 : 0);
        const all = rowsOf(map, page.state.heapOrder, bytes), rows = all.slice(0, MOST_ROWS),
              query = page.state.query.trim();
        const ratio = devicePixelRatio || 1, height = rows.length * pitch + 4;
        canvas.width = Math.round(width * ratio);
        canvas.height = Math.round(height * ratio);
        canvas.style.height = height + "px";
        const c = canvas.getContext("2d");
        c.setTransform(ratio, 0, 0, ratio, 0, 0);
        c.font = "11.5px system-ui, sans-serif";
        heap.boxes = [];
        const px = b => (b / bytes) * (width - label - 2), hatch = hatched(c);
        rows.forEach((row, r) => {
            const y = r * pitch + (small ? 12 : 0) + 1;
            c.fillStyle = page.ink.soft;
            c.textAlign = small ? "left" : "right";
            c.fillText(labelOf(row), small ? 0 : label - 10, small ? y - 2 : y + 11.5);
            for (const piece of row.pieces) drawPiece(c, piece, label + px(piece.left), y, px, hatch, query);
        });
        page.byId("map").dataset.rows = String(rows.length);
        heap.rowBytes = bytes;
        heap.cut = all.length - rows.length;
    }
    /* Waiting for a stream: neither in use nor reusable. */
    function hatched(c) {
        const tile = document.createElement("canvas");
        tile.width = tile.height = 6;
        const t = tile.getContext("2d");
        t.strokeStyle = page.ink.soft;
        t.beginPath();
        t.moveTo(0, 6);
        t.lineTo(6, 0);
        t.stroke();
        return c.createPattern(tile, "repeat");
    }
    function drawPiece(c, piece, x, y, px, hatch, query) {
        const {segment} = piece.of, wide = px(piece.to - piece.from);
        c.fillStyle = page.ink.sunk;
        c.fillRect(x, y, Math.max(1, wide), BAR);
        heap.boxes.push({x, y, width: Math.max(1, wide), piece, px});
        for (const b of segment.blocks) {
            const from = Math.max(b.offset, piece.from), to = Math.min(b.offset + b.bytes, piece.to);
            if (to <= from) continue;
            const left = x + px(from - piece.from), w = Math.max(0.6, px(to - from) - (px(to - from) > 3 ? 0.6 : 0));
            c.globalAlpha = query && !matches(b, query) ? 0.18 : 1;
            c.fillStyle = b.pending ? hatch : page.categoryColour(toneOf(b));
            c.fillRect(left, y, w, BAR);
        }
        c.globalAlpha = 1;
        c.strokeStyle = page.ink.faint;
        c.lineWidth = 1;
        c.strokeRect(x + 0.5, y + 0.5, Math.max(0, wide - 1), BAR - 1);
    }
    const placeOf = block => (block.stack >= 0 ? page.clean(page.model.site(block.stack))
            : block.merged                     ? page.plural(block.merged, "block") + " of smaller call sites"
                                               : "unknown call site");
    const toneOf = block => page.tone(block.category, block.stack >= 0 ? page.model.site(block.stack) : "");
    const matches = (block, query) => page.matches(placeOf(block) + " " + page.categoryName(block.category));

    /* The blocks in a nearly empty segment: it cannot be freed while it contains one. */
    heap.pinned = function (map) {
        return measure(map).segments.filter(s => s.used > 0 && s.used < 0.25 * s.bytes && s.bytes - s.used >= 1 << 20)
            .sort((a, b) => b.bytes - b.used - (a.bytes - a.used)).slice(0, 8);
    };
    function pins(map) {
        const list = heap.pinned(map), node = page.byId("heap-pins");
        if (!list.length) return page.fill(node);
        return page.fill(
            node, make("h3", null, "Blocks in nearly empty segments"), make("ul", {class: "pins"}, list.map(s => {
                const block = s.segment.blocks.slice().sort((a, b) => b.bytes - a.bytes)[0],
                      others = s.segment.blocks.length - 1, text = placeOf(block);
                return make("li", null,
                    make(
                        "span", {class: "soft"}, page.bytes(s.bytes) + ", " + page.share(s.used / s.bytes) + " in use"),
                    make("span", null, page.bytes(block.bytes), " ", page.swatch(page.categoryColour(toneOf(block))),
                        " ", page.siteButton(text, text),
                        others
                            ? make("span", {class: "soft"}, " and " + page.plural(others, "more block", "more blocks"))
                            : null));
            })));
    }

    function about(map) {
        const m = measure(map), oom = page.oomAt(page.places[page.state.place]);
        let text = page.plural(map.segments.length, "segment") + " of " + page.bytes(m.all) + ", " +
            page.share(m.used / (m.all || 1)) + " in blocks; " + page.bytes(m.all - m.used) +
            " in holes, the largest " + page.bytes(m.largest);
        if (map.at === "oom" && oom) {
            text += oom.requested_bytes > m.largest
                ? ": too small for the request of " + page.bytes(oom.requested_bytes)
                : ": large enough for the request of " + page.bytes(oom.requested_bytes) +
                    ", but not in the right pool or stream";
        }
        return text + ". A row is " + page.bytes(heap.rowBytes) + "; at " + page.seconds(map.time) + "." +
            (map.note ? " " + page.clean(map.note, 1000) : "") +
            (heap.cut ? " " + page.count(heap.cut) + " more rows are not shown: choose more bytes per row." : "");
    }

    function draw() {
        const maps = heap.maps(), node = page.byId("heap");
        node.hidden = !maps.length;
        if (!maps.length) return;
        const died = maps.findIndex(m => m.at === "oom"),
              wanted = page.state.heap === null ? Math.max(0, died) : page.state.heap;
        const at = maps[wanted] ? wanted : 0, map = maps[at], names = {peak: "At the peak", oom: "At the OOM"};
        const several = new Set(maps.map(m => m.at)).size < maps.length; /* distinguished by their times */
        const said = m => (names[m.at] || page.clean(m.at)) +
            (several && m.at === "oom" ? ", " + page.seconds(m.time) : "");
        page.choice(page.byId("heap-at"), "heap", maps.map((m, i) => [i, said(m)]), at);
        page.choice(page.byId("heap-order"), "heapOrder",
            [["address", "By address"], ["size", "By size"], ["empty", "Emptiest first"]]);
        page.fill(page.byId("heap-zoom"),
            [[1, "−", "more bytes per row"],
                [-1, "+", "fewer bytes per row"]].map(([by, words, title]) => make("button", {
                type: "button",
                title,
                "aria-label": title,
                onclick: () => {
                    heap.zoom = Math.max(-5, Math.min(4, (heap.zoom || 0) + by));
                    page.keepFocus(draw);
                }
            },
                                                                                   words)));
        drawMap(map);
        page.byId("heap-about").textContent = page.whole(about(map));
        const present = new Map();
        for (const s of map.segments) {
            for (const b of s.blocks) {
                const tone = b.pending ? "pending" : toneOf(b);
                present.set(tone, (present.get(tone) || 0) + b.bytes);
            }
        }
        const tones = page.isPlain(page.series())
            ? Array.from(present.keys()).filter(t => t !== "pending").sort((a, b) => present.get(b) - present.get(a))
            : page.categories.filter(c => present.has(c));
        page.fill(page.byId("heap-legend"),
            tones.slice(0, 12).map(t => make("span", {class: "cats"},
                make("span", null, page.swatch(page.categoryColour(t)), page.categoryName(t) || "unknown call site"))),
            present.has("pending") ? make("span", {class: "note"}, "hatched: freed, but a stream may still use it")
                                   : null);
        pins(map);
    }

    const addressOf = (segment, part) =>
        "0x" + BigInt(Math.round(segment.address + (part ? part.offset : 0))).toString(16);

    function tip(event) {
        const rect = page.byId("map").getBoundingClientRect(), x = event.clientX - rect.left,
              y = event.clientY - rect.top;
        const box = heap.boxes.find(b => x >= b.x && x <= b.x + b.width && y >= b.y && y <= b.y + BAR);
        if (!box) return page.tipOff();
        const {segment} = box.piece.of, offset = box.piece.from + (x - box.x) / box.px(1),
              near = box.px(1) ? 1 / box.px(1) : 0;
        const block = segment.blocks.find(b => b.offset <= offset && offset < b.offset + b.bytes) ||
            segment.blocks.find(b => b.offset - near <= offset && offset < b.offset + b.bytes + near);
        const hole = block ? null : box.piece.of.holes.find(h => h.offset <= offset && offset < h.offset + h.bytes);
        const where = "in a segment of " + page.bytes(segment.bytes) + ", " +
            page.share(box.piece.of.used / segment.bytes) + " in use, " + page.clean(segment.pool || "") +
            (segment.pool ? " pool" : "") + (segment.stream ? ", stream " + page.clean(String(segment.stream)) : "") +
            (segment.expandable ? ", expandable" : "");
        return page.tip(event.clientX, event.clientY, null, block
            ? [make("div", null, make("span", {class: "big"}, page.bytes(block.bytes)),
                   make("span", {class: "soft"}, block.pending ? " freed, waiting for a stream" : "")),
                make("div", null, page.swatch(page.categoryColour(toneOf(block))),
                    " " + page.categoryName(toneOf(block))),
                make("div", {class: "mono"}, placeOf(block))]
            : make("div", null, make("span", {class: "big"}, hole ? page.bytes(hole.bytes) : ""),
                make("span", {class: "soft"}, " free: a hole")),
        make("div", {class: "soft"}, where), make("div", {class: "faint mono"}, addressOf(segment, block || hole)));
    }
    page.parts.push(function () {
        const canvas = page.byId("map").querySelector("canvas");
        for (const kind of ["pointermove", "pointerdown"]) canvas.addEventListener(kind, tip);
        canvas.addEventListener("pointerleave", page.tipOff);
    });
    page.view(["place", "layer", "heap", "heapOrder", "query", "ink"], draw);
})(gpuspyPage);
