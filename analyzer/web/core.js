/* The page's state, and how its parts are notified of changes. The linkable part is in location.hash, so that a link
 * leads to the same moment. Each part (page_*.js, in order of their names) registers a view: the names of the state
 * that it draws, and a function. */
"use strict";
var gpuspyPage = (function () {
    const views = [];
    const page = {
        model: null,
        report: null,
        ink: {},
        places: [], /* {process, rank, device, series: {layer: index}} */
        state: {
            place: 0,
            layer: null,
            by: null,
            scale: "fit",
            zoom: null,
            moment: null,
            pin: null,
            source: null,
            frames: "yours",
            root: "top",
            focus: null,
            band: null,
            heap: null,
            heapOrder: "address",
            table: null,
            query: "",
            theme: null,
            hidden: new Set(),
        },
    };
    /* What a link contains: a letter, the name, and how it is read and written unless it is plain text. */
    const number = {read: text => (text !== "" && isFinite(text) ? Number(text) : null), write: value => String(value)};
    const seconds = {read: number.read, write: value => String(Number(value.toFixed(9)))};
    const range = {
        read: text => {
            const ends = text.split("~").map(Number);
            return ends.length === 2 && isFinite(ends[0]) && ends[1] > ends[0] ? ends : null;
        },
        write: value => value.map(seconds.write).join("~"),
    };
    const text = {read: value => value.slice(0, 400), write: value => value};
    const kept = [
        ["p", "place", number, null],
        ["l", "layer", text, null],
        ["by", "by", text, null],
        ["y", "scale", text, "fit"],
        ["z", "zoom", range, null],
        ["t", "moment", seconds, null],
        ["u", "pin", seconds, null],
        ["w", "source", text, null],
        ["b", "band", text, null],
        ["f", "frames", text, "yours"],
        ["r", "root", text, "top"],
        ["h", "heap", number, null],
        ["o", "heapOrder", text, "address"],
        ["tab", "table", text, null],
        ["q", "query", text, ""],
    ];
    let dirty = new Set(), pending = 0, written = "";

    function readHash() {
        const given = new URLSearchParams(location.hash.replace(/^#/, "").includes("=") ? location.hash.slice(1) : "");
        const patch = {};
        for (const [letter, name, how, start] of kept) {
            const value = given.has(letter) ? how.read(given.get(letter)) : start;
            patch[name] = value === null ? start : value;
        }
        return patch;
    }

    /* The address of the current view. */
    page.link = function () {
        const out = [], place = page.places[page.state.place];
        /* the state without an explicit choice */
        const usual = {place: firstPlace(), layer: place && page.layersOf(place)[0]};
        for (const [letter, name, how, start] of kept) {
            const value = page.state[name];
            if (value !== start && value !== null && value !== undefined && value !== usual[name]) {
                out.push(letter + "=" + encodeURIComponent(how.write(value)).replace(/%7E/g, "~"));
            }
        }
        return out.length ? "#" + out.join("&") : "";
    };

    function writeHash() {
        const hash = page.link();
        if (hash === written || (!hash && !location.hash.includes("="))) return;
        written = hash;
        /* A page opened from a file may not be allowed to do this; the page works without it. */
        try { history.replaceState(null, "", hash || location.pathname + location.search); } catch (e) { /* without the link */ }
    }

    function draw() {
        pending = 0;
        const changed = dirty;
        dirty = new Set();
        page.keepFocus(() => {
            for (const view of views) {
                if (view.names.some(name => changed.has(name))) view.draw(changed);
            }
        });
        clearTimeout(page.hashTimer);
        page.hashTimer = setTimeout(writeHash, 120);
    }

    /* A redraw replaces buttons: the keyboard focus stays where it was. */
    page.keepFocus = function (drawIt) {
        const active = document.activeElement, above = active && active.parentElement,
              holder = above && above.closest("[id]");
        const sign = node => node.id || [node.tagName, ...Object.values(node.dataset), node.textContent].join("\n");
        const signed = holder && active !== document.body ? sign(active) : null;
        drawIt();
        if (signed === null || document.contains(active) || !document.contains(holder)) return;
        const all = Array.from(holder.querySelectorAll("button, a, input, [tabindex]"));
        const same = all.find(node => sign(node) === signed) || all.find(node => node.tabIndex === 0);
        if (same) same.focus({preventScroll: true});
    };

    /* A view is drawn when one of the names changed, in order of registration; "ink" is the theme or the width. */
    page.view = function (names, drawIt) { views.push({names, draw: drawIt}); };
    page.changed = function (...names) {
        names.forEach(name => dirty.add(name));
        if (!pending) pending = requestAnimationFrame(draw);
    };
    page.set = function (patch) {
        for (const name of Object.keys(patch)) {
            if (page.state[name] !== patch[name]) {
                page.state[name] = patch[name];
                page.changed(name);
            }
        }
    };

    function readInk() {
        const style = getComputedStyle(document.documentElement);
        const names = [
            "back", "card", "sunk", "ink", "soft", "faint", "line", "grid", "accent", "bad", "warn", "good", "more",
            "less"
        ].concat(page.categories);
        for (const name of names) page.ink[name] = style.getPropertyValue("--" + name).trim() || "#888";
    }

    page.theme = function (theme) {
        const dark = theme ? theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
        document.documentElement.dataset.theme = dark ? "dark" : "light";
        readInk();
        page.changed("ink");
    };

    page.toggleTheme = function () {
        page.state.theme = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
        try { localStorage.setItem("gpuspy-theme", page.state.theme); } catch (e) { /* then it is not stored */ }
        page.theme(page.state.theme);
    };

    page.categories = [
        "parameters", "optimizer_state", "kv_cache", "gradients", "inputs", "activations", "workspaces", "temporaries", "unknown",
    ]; /* the order of the bands: from memory that stays to temporary memory */

    /* The series of the chosen process, device and layer; null if nothing was recorded. */
    page.series = function () {
        const place = page.places[page.state.place];
        return place ? page.model.series[place.layers[page.state.layer]] || null : null;
    };
    page.seriesIndex = function () {
        const place = page.places[page.state.place];
        return place ? place.layers[page.state.layer] : undefined;
    };
    page.indexAt = function (series, time) {
        if (!series || !series.n || time === null) return -1;
        /* Plus half a nanosecond: a time that was read from a link may be slightly below the bucket's own. */
        return Math.max(0, d3.bisectRight(series.start, time + 5e-10, 0, series.n) - 1);
    };
    page.peakIndex = series => series.peak;
    /* A profile, or a snapshot without a history, shows one moment, and the peak is not known. */
    page.isMoment = function () { return (page.report.run.lacks || []).includes("history"); };
    /* The word for the recording's ranges, as in the terminal. */
    page.rangeWord = function () {
        const {run} = page.report;
        return run.imported && !(run.lacks || []).includes("tensors") ? "record_function" : "NVTX";
    };
    page.device = function (index) { return page.report.devices.find(d => d.index === index) || null; };
    page.processOf = function (place) { return page.report.run.processes[place.process] || {}; };
    /* What the program did after a failure; what it did may be unknown, as in the terminal. */
    page.outcome = oom =>
        oom.outcome === "unknown" ? "perhaps handled" : oom.outcome === "retried" ? "retried" : oom.fatal ? "fatal" : "handled";
    /* Is an entry of the report about that process and device? */
    page.isAt = function (entry, place) {
        const {rank} = place;
        if (rank !== null && rank !== undefined && entry.rank !== null && entry.rank !== undefined &&
            entry.rank !== rank)
            return false;
        return entry.device === place.device && (entry.pid === undefined || entry.pid === page.processOf(place).pid);
    };
    page.oomAt = function (place) { return page.report.oom.find(o => page.isAt(o, place)) || null; };

    function findPlaces() {
        const found = new Map();
        page.model.series.forEach((series, index) => {
            if (!series.n) return;
            const key = series.process + "/" + series.device;
            if (!found.has(key))
                found.set(key, {process: series.process, rank: series.rank, device: series.device, layers: {}});
            found.get(key).layers[series.layer] = index;
        });
        const rank = place => (place.rank === null || place.rank === undefined ? 1e9 : place.rank);
        const highest = place => Math.max(...Object.values(place.layers).map(
            index => page.model.series[index].high.reduce((most, bytes) => Math.max(most, bytes), 0)));
        const all = Array.from(found.values()), most = Math.max(...all.map(highest));
        const counts = place => place.device >= 0 || highest(place) >= most / 1000; /* not 8 bytes of pinned memory */
        page.places = all.filter(counts).sort((a, b) =>
            rank(a) - rank(b) || a.process - b.process || (a.device < 0) - (b.device < 0) || a.device - b.device);
    }
    const layerOrder = ["tensor", "device", "pinned", "host", "shared", "graph"];
    page.layersOf = function (place) {
        return Object.keys(place.layers).sort((a, b) => layerOrder.indexOf(a) - layerOrder.indexOf(b));
    };

    /* The initial choice: the process and device that died, else the one with most tensors. */
    function firstPlace() {
        const oom = page.report.oom.find(o => o.fatal) || page.report.oom[0];
        const died = oom ? page.places.findIndex(place => page.isAt(oom, place)) : -1;
        if (died >= 0) return died;
        let best = 0, most = -1;
        page.places.forEach((place, i) => {
            const series = page.model.series[place.layers[page.layersOf(place)[0]]];
            const high = place.device < 0 ? 0 : series.high[page.peakIndex(series)];
            if (high > most) { most = high; best = i; }
        });
        return best;
    }

    /* Completes what a link states: an existing process and device, a layer that it has, a moment within it. */
    page.settle = function (patch) {
        if (!page.places[patch.place]) patch.place = firstPlace();
        const place = page.places[patch.place], {zoom} = patch;
        if (place && !page.layersOf(place).includes(patch.layer)) patch.layer = page.layersOf(place)[0];
        if (place && zoom) {
            const series = page.model.series[place.layers[patch.layer]], [first, last] = page.chart.full(series);
            if (zoom[0] >= last || zoom[1] <= first) patch.zoom = null;
            else patch.zoom = [Math.max(first, zoom[0]), Math.min(last, zoom[1])];
        }
        if (patch.by !== "site" && patch.by !== "category") patch.by = null;
        page.set(patch);
    };
    /* By line if no categories are known. */
    page.stackedBy = function () {
        const series = page.series();
        return page.state.by || (page.isPlain(series) ? "site" : "category");
    };
    page.isPlain = function (series) {
        if (series && series.plain === undefined)
            series.plain = series.lines.every(line => line.category === "unknown");
        return Boolean(series && series.plain);
    };
    page.choosePlace = function (index) {
        const place = page.places[index], layers = page.layersOf(place);
        page.set({
            place: index,
            layer: layers.includes(page.state.layer) ? page.state.layer : layers[0],
            zoom: null,
            moment: null,
            pin: null,
            source: null,
            focus: null,
            band: null,
            heap: null,
        });
    };

    page.start = function () {
        const data = page.data = JSON.parse(document.getElementById("gpuspy-data").textContent);
        page.model = gpuspyModel(data);
        page.report = page.model.report;
        findPlaces();
        try { page.state.theme = localStorage.getItem("gpuspy-theme"); } catch (e) { /* as the system does */ }
        page.theme(page.state.theme);
        matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => page.theme(page.state.theme));
        page.settle(readHash());
        addEventListener("hashchange", () => {
            if (location.hash.includes("=") && location.hash !== written) page.settle(readHash());
        });
        let width = 0;
        new ResizeObserver(() => {
            const now = document.getElementById("main").clientWidth;
            if (now !== width && width) page.changed("ink");
            width = now;
        }).observe(document.getElementById("main"));
        /* Paper is white. */
        addEventListener("beforeprint", () => {
            document.documentElement.dataset.theme = "light";
            readInk();
            dirty.add("ink");
            draw();
        });
        addEventListener("afterprint", () => page.theme(page.state.theme));
        page.parts.forEach(part => part());
        page.changed(...Object.keys(page.state), "ink");
        page.ready = true;
    };
    page.parts = []; /* functions that build the static parts, called once the model exists */
    return page;
})();
