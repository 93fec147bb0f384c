/* Flame graphs: entries (call paths with bytes) as a tree of calls. Width is bytes; for two moments it is the change,
 * with growth and decrease in two colours. A click makes a frame the whole width. */
"use strict";
(function (page) {
    const ROW = 20, LETTER = 7.25, SVG = "http://www.w3.org/2000/svg", THIN = 2.5;
    const flame = page.flame = {tree: null};

    /* The frames of a call path that are shown, outermost first. */
    flame.path = function (frames, mode) {
        const python = frames.filter(f => !page.isNative(f));
        let path = mode !== "native" && python.length ? python : frames;
        if (mode === "yours") {
            /* Of PyTorch's and Python's internal calls, only the outermost. */
            const rest = path.filter(f => !page.isGlue(f)),
                  own = rest.filter((f, i) => !page.isPlumbing(f) || (i > 0 && !page.isPlumbing(rest[i - 1])));
            if (own.length) path = own;
        }
        return path;
    };

    /* entries: [{frames, label, category, bytes, count}]; bytes may be negative if two moments are compared. */
    flame.build = function (entries, mode) {
        const node = (name, frame, depth) =>
            ({name, frame, depth, more: 0, less: 0, count: 0, categories: new Map(), children: new Map()});
        const root = node("all", null, 0), keys = new Map();
        const keyOf = frame => {
            if (!keys.has(frame))
                keys.set(frame, page.frameText(frame) + "\0" + (frame.file || "") + (frame.native ? "\0n" : ""));
            return keys.get(frame);
        };
        const add = (to, e) => {
            if (e.bytes >= 0) to.more += e.bytes; else to.less -= e.bytes;
            to.count += e.count;
            to.categories.set(e.category, (to.categories.get(e.category) || 0) + Math.abs(e.bytes));
        };
        for (const e of entries) {
            const path = e.frames.length ? flame.path(e.frames, mode)
                                         : [{function: e.label, file: null, line: null, place: true}];
            let at = root;
            add(root, e);
            for (const frame of path) {
                const key = keyOf(frame);
                let child = at.children.get(key);
                if (!child)
                    at.children.set(key,
                        child = node(
                            frame.place ? page.clean(e.label) : key.slice(0, key.indexOf("\0")), frame, at.depth + 1));
                add(child, e);
                at = child;
            }
        }
        finish(root);
        return root;
    };
    function finish(root) {
        const todo = [root];
        while (todo.length) {
            const node = todo.pop();
            node.value = node.more + node.less;
            node.list = Array
                            .from(node.children,
                                ([key, child]) => {
                                    child.key = key;
                                    child.parent = node;
                                    return child;
                                })
                            .sort((a, b) => b.more + b.less - a.more - a.less || (a.key < b.key ? -1 : 1));
            let most = -1;
            node.categories.forEach((bytes, category) => {
                if (bytes > most) {
                    most = bytes;
                    node.category = category;
                }
            });
            todo.push(...node.list);
        }
    }

    flame.find = function (root, keys) {
        let at = root;
        for (const key of keys || []) {
            const child = at.children.get(key);
            if (!child) break;
            at = child;
        }
        return at;
    };
    const keysOf = node => {
        const keys = [];
        for (let n = node; n.parent; n = n.parent) keys.unshift(n.key);
        return keys;
    };

    /* ------------------------------------------------------------ colours */
    function colourOf(node, compare) {
        const {ink} = page;
        if (!node.parent) return ink.line;
        if (compare) {
            const net = (node.more - node.less) / (node.value || 1);
            return d3.interpolateRgb(ink.sunk, net > 0 ? ink.more : ink.less)(Math.min(1, 0.25 + 0.75 * Math.abs(net)));
        }
        const base = page.categoryColour(node.category);
        return node.frame && !node.frame.place && page.isLibrary(node.frame) ? d3.interpolateRgb(base, ink.card)(0.55)
                                                                             : base;
    }
    function inkOn(colour) {
        const c = d3.rgb(colour),
              lin = v => (v / 255 <= 0.04045 ? v / 255 / 12.92 : Math.pow((v / 255 + 0.055) / 1.055, 2.4));
        return 0.2126 * lin(c.r) + 0.7152 * lin(c.g) + 0.0722 * lin(c.b) > 0.3 ? "#16181b" : "#ffffff";
    }
    page.inkOn = inkOn;

    flame.amount = node => (node.less
            ? (node.more ? "+" + page.bytes(node.more) + " −" + page.bytes(node.less) : "−" + page.bytes(node.less))
            : (flame.compare ? "+" : "") + page.bytes(node.more));

    /* ------------------------------------------------------------ layout: what is wide enough to be seen */
    function layout(focus, width) {
        const out = [];
        for (let n = focus.parent; n; n = n.parent) out.push({node: n, x: 0, width, above: true});
        const todo = [{node: focus, x: 0, width}];
        while (todo.length) {
            const at = todo.pop();
            out.push(at);
            if (!at.node.value) continue;
            let x = at.x;
            for (const child of at.node.list) {
                const wide = (child.value / at.node.value) * at.width;
                if (wide < THIN) break; /* the rest is smaller */
                todo.push({node: child, x, width: wide});
                x += wide;
            }
        }
        return out;
    }

    function shape(at, depths, compare, query) {
        const {node} = at, g = document.createElementNS(SVG, "g"), rect = document.createElementNS(SVG, "rect");
        const row = page.state.root === "top" ? node.depth : depths - node.depth, colour = colourOf(node, compare);
        rect.setAttribute("x", at.x.toFixed(2));
        rect.setAttribute("y", row * ROW);
        rect.setAttribute("width", Math.max(0.5, at.width).toFixed(2));
        rect.setAttribute("height", ROW);
        rect.setAttribute("rx", at.width > 6 ? 3 : 0);
        rect.setAttribute("fill", colour);
        g.append(rect);
        g.setAttribute("tabindex", "-1");
        g.setAttribute("role", "treeitem");
        g.setAttribute("aria-label", node.name + ", " + flame.amount(node));
        const letters = Math.floor((at.width - 8) / LETTER);
        if (letters >= 3) {
            const text = document.createElementNS(SVG, "text");
            text.setAttribute("x", (at.x + 5).toFixed(2));
            text.setAttribute("y", row * ROW + 14);
            text.setAttribute("fill", inkOn(colour));
            const full = node.parent ? node.name : flame.title + ", " + flame.amount(node);
            text.textContent = full.length > letters ? full.slice(0, letters - 1) + "…" : full;
            g.append(text);
        }
        if (at.above) g.setAttribute("class", "dim");
        if (query) g.setAttribute("class", node.hit ? "hit" : node.within ? "" : "dim");
        g.flameNode = node;
        return g;
    }

    /* Bytes below frames that match, each counted once. */
    function search(root, query) {
        let bytes = 0;
        const todo = [[root, false]];
        while (todo.length) {
            const [node, within] = todo.pop();
            node.hit = Boolean(query) && Boolean(node.parent) &&
                (node.name.toLowerCase().includes(query) ||
                    page.categoryName(node.category).toLowerCase().includes(query) && !node.list.length);
            node.within = within;
            if (node.hit && !within) bytes += node.value;
            for (const child of node.list) todo.push([child, within || node.hit]);
        }
        return bytes;
    }

    function crumbs(focus, matched, query) {
        const {make} = page, path = [], share = bytes => page.share(bytes / (flame.tree.value || 1));
        const crumb = n => make("button",
            {class: "plain", type: "button", onclick: () => page.set({focus: n.parent ? keysOf(n) : null})},
            n.parent ? n.name : "all");
        for (let n = focus; n; n = n.parent) path.unshift(n);
        const shown = path.length > 5 ? [path[0], null, ...path.slice(-3)] : path;
        page.fill(page.byId("crumbs"),
            query ? make("span", {class: "hit", id: "matched"},
                        "matched " + page.bytes(matched) + " (" + share(matched) + ")")
                  : null,
            query ? make("button", {class: "plain", type: "button", onclick: () => page.setQuery("")}, "clear") : null,
            focus.parent ? shown.map((n, i) => (n ? [i ? " › " : null, crumb(n)] : " › … ")) : null,
            focus.parent ? make("span", null,
                               flame.amount(focus) + " in " + page.plural(Math.abs(focus.count), "block") + ", " +
                                   share(focus.value) + " of all")
                         : null);
    }

    flame.draw = function () {
        const holder = page.byId("flame"), root = flame.tree;
        if (!root || !root.value) {
            page.fill(page.byId("crumbs"));
            return page.fill(holder, page.make("p", {class: "empty"}, flame.nothing || "Nothing was live then."));
        }
        const width = holder.clientWidth || 600, query = page.state.query.trim().toLowerCase();
        const focus = flame.find(root, page.state.focus), shapes = layout(focus, width);
        const matched = search(root, query);
        const depths = shapes.reduce((most, at) => Math.max(most, at.node.depth), 0);
        const svg = document.createElementNS(SVG, "svg");
        svg.setAttribute("height", (depths + 1) * ROW);
        svg.setAttribute("width", width);
        svg.setAttribute("viewBox", `0 0 ${width} ${(depths + 1) * ROW}`); /* for paper, which is narrower */
        svg.setAttribute("role", "tree");
        svg.setAttribute("tabindex", "0");
        svg.setAttribute(
            "aria-label", "Flame graph: " + flame.title + ". Arrow keys go from call to call, Enter zooms.");
        svg.append(...shapes.map(at => shape(at, depths, flame.compare, query)));
        const held = document.activeElement && document.activeElement.flameNode;
        page.fill(holder, svg);
        if (held) focusOn(svg, flame.find(root, keysOf(held)));
        return crumbs(focus, matched, query);
    };

    /* ------------------------------------------------------------ pointer and keys */
    function focusOn(svg, node) {
        const g = Array.from(svg.children).find(child => child.flameNode === node);
        if (g) g.focus({preventScroll: true});
        return Boolean(g);
    }
    function zoom(node) { page.set({focus: node.parent ? keysOf(node) : null}); }
    function key(event) {
        const svg = page.byId("flame").firstChild, node = event.target.flameNode;
        if (event.key === "Escape") return; /* handled for the whole page */
        const top = page.state.root === "top", down = top ? "ArrowDown" : "ArrowUp", up = top ? "ArrowUp" : "ArrowDown";
        const siblings = node && node.parent ? node.parent.list : [], place = siblings.indexOf(node);
        const to = !node
            ? flame.find(flame.tree, page.state.focus)
            : {[down]: node.list[0], [up]: node.parent, ArrowRight: siblings[place + 1], ArrowLeft: siblings[place - 1]}
                  [event.key];
        if (event.key.startsWith("Arrow")) {
            event.preventDefault();
            event.stopPropagation();
            if (to) focusOn(svg, to);
        } else if (event.key === "Enter" && node) {
            zoom(node);
        }
    }
    function tip(event) {
        const node = event.target.parentNode && event.target.parentNode.flameNode, {make} = page;
        if (!node) return page.tipOff();
        const frame = node.frame, cats = Array.from(node.categories).sort((a, b) => b[1] - a[1]).slice(0, 5);
        return page.tip(event.clientX, event.clientY, null,
            make("div", {class: "mono"}, node.parent ? node.name : flame.title),
            frame && frame.file
                ? make("div", {class: "soft"}, page.clean(frame.file) + (frame.line ? ":" + frame.line : ""))
                : null,
            make("div", null, make("span", {class: "big"}, flame.amount(node)),
                make("span", {class: "soft"},
                    " " + page.share(node.value / flame.tree.value) + ", " +
                        page.plural(Math.abs(node.count), "block"))),
            !flame.compare && cats.length > 1 || (cats[0] && cats[0][0] !== "unknown")
                ? make("table", null,
                      cats.map(([category, bytes]) =>
                                   make("tr", null, make("td", null, page.swatch(page.categoryColour(category))),
                                       make("td", null, page.categoryName(category)),
                                       make("td", {class: "n"}, page.bytes(bytes)))))
                : null);
    }
    page.parts.push(function () {
        const holder = page.byId("flame");
        holder.addEventListener("click", event => {
            const node = event.target.parentNode && event.target.parentNode.flameNode;
            if (node) zoom(node === flame.find(flame.tree, page.state.focus) && node.parent ? node.parent : node);
        });
        holder.addEventListener("pointermove", event => { if (event.pointerType !== "touch") tip(event); });
        holder.addEventListener("pointerleave", page.tipOff);
        holder.addEventListener("keydown", key);
    });
})(gpuspyPage);
