/* Input on the chart: pointer, wheel, pinch and keys; the overview with its brush; the content of the tooltip. */
"use strict";
(function (page) {
    const chart = page.chart;
    const LEAST = 1e-9; /* s: the resolution of the clock */
    let over, plot;

    function clamp(from, to) {
        const [first, last] = chart.full(chart.series), span = Math.min(to - from, last - first);
        if (from < first) return [first, first + span];
        if (to > last) return [last - span, last];
        return [from, from + span];
    }
    chart.zoomTo = function (from, to) {
        const [first, last] = chart.full(chart.series);
        if (!(to - from >= LEAST)) return;
        const [a, b] = clamp(from, to);
        page.set({zoom: b - a >= (last - first) * 0.9999 ? null : [a, b]});
    };
    chart.zoomBy = function (factor, at) {
        const [from, to] = chart.domain, middle = at === undefined || at === null ? (from + to) / 2 : at;
        chart.zoomTo(middle - (middle - from) * factor, middle + (to - middle) * factor);
    };

    chart.pick = function (time, pinned, band = null) {
        const i = page.indexAt(chart.series, time);
        if (i < 0) return;
        const exact = chart.series.time[i];
        if (pinned || chart.waiting) {
            const from =
                page.state.moment !== null ? page.state.moment : chart.series.time[page.peakIndex(chart.series)];
            page.set({
                pin: page.state.pin === null || page.state.source !== "compare" ? from : page.state.pin,
                moment: exact,
                source: "compare",
                focus: null
            });
            chart.waiting = false;
        } else {
            const source = i === page.peakIndex(chart.series) ? "peak" : "moment";
            page.set({moment: exact, pin: null, source, focus: null, band: band && !band.other ? band.name : null});
        }
        say(i);
    };
    /* The next chosen moment is compared with this one: for touch screens, which have no Shift. */
    chart.pinMoment = function () {
        if (page.state.moment === null) return;
        page.set({pin: page.state.moment, source: "compare"});
        chart.waiting = true;
        page.toast("A is pinned: choose B in the chart");
    };
    function say(i) {
        const series = chart.series,
              text = "at " + page.moment(series.time[i], chart.domain[1] - chart.domain[0]) + ": " +
            page.bytes(series.high[i]);
        over.setAttribute("aria-valuenow", String(i));
        over.setAttribute("aria-valuemax", String(series.n - 1));
        over.setAttribute("aria-valuemin", "0");
        over.setAttribute("aria-valuetext", text);
        page.byId("moment-said").textContent = text;
    }

    /* ------------------------------------------------------------ tooltip */
    function tip(event, x) {
        const series = chart.series, i = page.indexAt(series, chart.hover), make = page.make;
        const span = chart.domain[1] - chart.domain[0], total = chart.totals[i];
        const heavy =
            chart.shown.filter(layer => layer.values[i] > 0).sort((a, b) => b.values[i] - a.values[i]).slice(0, 7);
        const rows = heavy.map(layer => make("tr", null, make("td", null, page.swatch(chart.colour(layer))),
                                   make("td", null, layer.words), make("td", {class: "n"}, page.bytes(layer.values[i])),
                                   make("td", {class: "n soft"}, page.share(layer.values[i] / (total || 1)))));
        if (chart.under) {
            const held = chart.under.high[page.indexAt(chart.under, series.time[i])];
            rows.push(make("tr", {class: "soft"}, make("td", null, page.swatch(page.ink.soft, "dashed")),
                make("td", null, "CUDA allocations"), make("td", {class: "n"}, page.bytes(held)), make("td")));
        }
        const whatif = page.whatif.of(series), replayed = whatif ? page.whatif.at(whatif, series.time[i]) : null;
        if (replayed !== null)
            rows.push(make("tr", {class: "soft"}, make("td", null, page.swatch(page.ink.accent, "solid")),
                make("td", null, page.whatif.name(whatif)), make("td", {class: "n"}, page.bytes(replayed)), make("td")));
        const around = page.lanes.around(series, chart.time(x)), step = page.lanes.step(series, chart.time(x)),
              events = page.lanes.near(series, x);
        page.tip(event.clientX, event.clientY, plot,
            make("div", null, make("span", {class: "big"}, page.bytes(total)),
                make("span", {class: "soft"}, " at " + page.moment(series.time[i], span)),
                chart.capacity
                    ? make("span", {class: "soft"}, ", " + page.share(total / chart.capacity) + " of the device")
                    : null),
            step || around.length ? make("div", {class: "soft"}, [step, ...around].filter(Boolean).join(" › ")) : null,
            make("table", null, rows),
            events.slice(0, 3).map(
                e => make("div", {class: e.kind === "oom" ? "event" : "event calm"}, page.lanes.words(e))),
            events.length > 3
                ? make("div", {class: "soft"}, "and " + page.count(events.length - 3) + " more within these pixels")
                : null);
    }
    function hover(event, x) {
        chart.hover = chart.time(Math.max(0, Math.min(chart.width, x)));
        chart.drawOver();
        tip(event, x);
        legendAmounts();
    }
    function leave() {
        if (chart.hover === null) return;
        chart.hover = null;
        chart.drawOver();
        page.tipOff();
        legendAmounts();
    }

    /* ------------------------------------------------------------ pointers */
    const down = new Map(); /* of each pointer: its current and previous position */
    let dragged = false, pinch = null, pageScrolled = -1e9;

    const at = event => event.clientX - over.getBoundingClientRect().left;
    function pointerDown(event) {
        if (event.button > 0) return;
        over.setPointerCapture(event.pointerId);
        down.set(event.pointerId, {x: at(event), start: at(event), domain: chart.domain.slice()});
        dragged = down.size > 1;
        if (down.size === 2) {
            const [a, b] = Array.from(down.values(), p => chart.time(p.x));
            pinch = {a, b};
        }
    }
    function pointerMove(event) {
        const pointer = down.get(event.pointerId), x = at(event);
        if (!pointer) { if (event.pointerType !== "touch") hover(event, x); return; }
        pointer.x = x;
        if (pinch && down.size === 2) {
            /* The two moments stay under the two fingers. */
            const [p, q] = Array.from(down.values(), v => v.x / chart.width);
            if (Math.abs(q - p) < 0.02) return;
            const span = (pinch.b - pinch.a) / (q - p);
            chart.zoomTo(pinch.a - p * span, pinch.a - p * span + span);
            return;
        }
        if (!dragged && Math.abs(x - pointer.start) < 5) return;
        dragged = true;
        page.tipOff();
        if (page.state.zoom && !event.shiftKey && !chart.brush) {
            const span = pointer.domain[1] - pointer.domain[0], shift = ((pointer.start - x) / chart.width) * span;
            page.set({zoom: clamp(pointer.domain[0] + shift, pointer.domain[1] + shift)});
        } else if (event.pointerType === "touch") {
            hover(event, x);
        } else {
            chart.brush = [pointer.start, x];
            chart.hover = null;
            chart.drawOver();
        }
    }
    function pointerUp(event) {
        const pointer = down.get(event.pointerId);
        down.delete(event.pointerId);
        if (!pointer) return;
        if (pinch) { if (!down.size) pinch = null; return; }
        if (chart.brush) {
            const [a, b] = [Math.min(...chart.brush), Math.max(...chart.brush)].map(chart.time);
            chart.brush = null;
            chart.zoomTo(a, b);
            chart.drawOver();
        } else if (!dragged && event.type === "pointerup") {
            const time = chart.time(at(event)), y = event.clientY - over.getBoundingClientRect().top;
            chart.pick(time, event.shiftKey, chart.bandAt(page.indexAt(chart.series, time), y));
        }
        if (event.pointerType === "touch") leave();
    }
    /* The wheel zooms. But it scrolls the page while the page is being scrolled, and if the chart already shows the whole
     * run. */
    function wheel(event) {
        if (event.timeStamp - pageScrolled < 250 && !event.ctrlKey) { pageScrolled = event.timeStamp; return; }
        const across = Math.abs(event.deltaX) > Math.abs(event.deltaY);
        if (!page.state.zoom && (across || event.deltaY > 0)) { pageScrolled = event.timeStamp; return; }
        event.preventDefault();
        const unit = event.deltaMode === 1 ? 16 : event.deltaMode === 2 ? 200 : 1, [from, to] = chart.domain;
        if (across) {
            const shift = ((event.deltaX * unit) / chart.width) * (to - from);
            page.set({zoom: clamp(from + shift, to + shift)});
        } else {
            chart.zoomBy(Math.pow(1.0022, Math.max(-400, Math.min(400, event.deltaY * unit))), chart.time(at(event)));
        }
    }
    function key(event) {
        const i = page.indexAt(chart.series,
            page.state.moment !== null ? page.state.moment : chart.series.time[page.peakIndex(chart.series)]);
        const last = chart.series.n - 1, to = {Home: 0, End: last, PageUp: i - 50, PageDown: i + 50}[event.key];
        if (to === undefined) return;
        event.preventDefault();
        page.move(Math.max(0, Math.min(last, to)) - i);
    }
    /* Moves the moment by this many buckets, and keeps it in view. */
    page.move = function (by, pinned) {
        const series = chart.series;
        if (!series) return;
        const from = page.state.moment !== null ? page.indexAt(series, page.state.moment) : page.peakIndex(series);
        const i = Math.max(0, Math.min(series.n - 1, from + by)), time = series.time[i], [a, b] = chart.domain;
        if (page.state.zoom && (time < a || time > b)) page.set({zoom: clamp(time - (b - a) / 2, time + (b - a) / 2)});
        chart.pick(time, pinned);
    };
    page.reset = function () {
        if (page.state.focus) return page.set({focus: null});
        if (page.state.zoom) return page.set({zoom: null});
        return page.set({moment: null, pin: null, source: null, band: null});
    };

    /* ------------------------------------------------------------ overview */
    const HIGH = 44;
    function overviewX(time) {
        const [first, last] = chart.full(chart.series);
        return ((time - first) / (last - first)) * chart.width;
    }
    function drawOverview() {
        if (!chart.series || !chart.width) return;
        const canvas = page.byId("overview").querySelector("canvas"), c = chart.size(canvas, HIGH), {series} = chart;
        const most = series.high[page.peakIndex(series)] || 1, tops = new Float64Array(Math.ceil(chart.width) + 1);
        let x = 0;
        for (let i = 0; i < series.n; i++) {
            const from = Math.max(0, Math.floor(overviewX(series.start[i])));
            for (x = from;
                 x <= Math.min(tops.length - 1, (i + 1 < series.n ? overviewX(series.start[i + 1]) : Infinity)); x++) {
                tops[x] = x === from ? Math.max(tops[x], series.high[i]) : series.high[i];
            }
        }
        c.fillStyle = page.ink.sunk;
        c.fillRect(0, 0, chart.width, HIGH);
        c.fillStyle = page.ink.faint;
        c.globalAlpha = 0.55;
        c.beginPath();
        c.moveTo(0, HIGH);
        tops.forEach((v, k) => c.lineTo(k, HIGH - (v / most) * (HIGH - 6)));
        c.lineTo(tops.length, HIGH);
        c.fill();
        c.globalAlpha = 1;
        for (const e of page.lanes.lined(page.lanes.of(series).events)) {
            c.fillStyle = page.ink.bad;
            c.fillRect(overviewX(e.time) - 1, 0, 2, HIGH);
        }
        const [a, b] = page.state.zoom ? page.state.zoom.map(overviewX) : [0, chart.width];
        if (page.state.zoom) {
            c.fillStyle = page.ink.card;
            c.globalAlpha = 0.66;
            c.fillRect(0, 0, a, HIGH);
            c.fillRect(b, 0, chart.width - b, HIGH);
            c.globalAlpha = 1;
        }
        c.strokeStyle = page.ink.accent;
        c.lineWidth = 1.5;
        c.strokeRect(a + 0.75, 0.75, Math.max(2, b - a - 1.5), HIGH - 1.5);
        c.fillStyle = page.ink.accent;
        for (const edge of [a, b]) c.fillRect(Math.max(0, Math.min(chart.width - 4, edge - 2)), HIGH / 2 - 8, 4, 16);
    }
    function brushOverview(canvas) {
        let drag = null;
        const timeAt = event => {
            const [first, last] = chart.full(chart.series);
            return first + ((event.clientX - canvas.getBoundingClientRect().left) / chart.width) * (last - first);
        };
        canvas.addEventListener("pointerdown", event => {
            canvas.setPointerCapture(event.pointerId);
            const x = event.clientX - canvas.getBoundingClientRect().left,
                  [a, b] = page.state.zoom ? page.state.zoom.map(overviewX) : [-99, -99];
            const room = event.pointerType === "touch" ? 16 : 7, time = timeAt(event);
            const kind = Math.abs(x - a) < room     ? "left"
                : Math.abs(x - b) < room            ? "right"
                : page.state.zoom && x > a && x < b ? "move"
                                                    : "new";
            drag = {kind, time, zoom: page.state.zoom ? page.state.zoom.slice() : null, x};
        });
        canvas.addEventListener("pointermove", event => {
            if (!drag) return;
            const time = timeAt(event);
            if (Math.abs(event.clientX - canvas.getBoundingClientRect().left - drag.x) < 3 && drag.kind === "new")
                return;
            if (drag.kind === "new") chart.zoomTo(Math.min(time, drag.time), Math.max(time, drag.time));
            else if (drag.kind === "left") chart.zoomTo(Math.min(time, drag.zoom[1] - LEAST), drag.zoom[1]);
            else if (drag.kind === "right") chart.zoomTo(drag.zoom[0], Math.max(time, drag.zoom[0] + LEAST));
            else page.set({zoom: clamp(drag.zoom[0] + time - drag.time, drag.zoom[1] + time - drag.time)});
        });
        for (const end of ["pointerup", "pointercancel"]) canvas.addEventListener(end, () => { drag = null; });
        canvas.addEventListener("dblclick", () => page.set({zoom: null}));
    }

    /* ------------------------------------------------------------ legend */
    function toggle(layer, only) {
        const hidden = new Set(page.state.hidden), names = chart.layers.map(l => l.name);
        if (only) {
            const alone = names.every(name => name === layer || hidden.has(name));
            names.forEach(name => (alone || name === layer ? hidden.delete(name) : hidden.add(name)));
        } else if (!hidden.delete(layer)) {
            hidden.add(layer);
        }
        page.set({hidden});
    }
    function legend() {
        if (!chart.series) return;
        const item = (name, words, swatch, shown) => page.make("button", {
            type: "button",
            "aria-pressed": String(shown),
            "data-name": name,
            title: words + (matchMedia("(pointer: coarse)").matches ? ": tap hides or shows" : ": click hides or shows, with Shift only this"),
            onclick: event => toggle(name, event.shiftKey),
            ondblclick: () => toggle(name, true),
        },
            swatch, page.make("span", {class: "name"}, words), page.make("span", {class: "amount"}));
        page.fill(page.byId("legend"),
            chart.layers.map(layer => item(layer.name, layer.words, page.swatch(chart.colour(layer)),
                                 !page.state.hidden.has(layer.name))),
            chart.hasHeld()
                ? item("\0held", "CUDA allocations", page.swatch(page.ink.soft, "dashed"), !page.state.hidden.has("\0held"))
                : null,
            page.whatif.of(chart.series)
                ? item("\0whatif", page.whatif.name(page.whatif.of(chart.series)), page.swatch(page.ink.accent, "solid"),
                    !page.state.hidden.has("\0whatif"))
                : null);
        legendAmounts();
    }
    /* The amount of each at the pointer, else at the chosen moment, else at the peak. */
    function legendAmounts() {
        const {series} = chart, time = chart.hover !== null ? chart.hover : page.state.moment;
        const i = time === null ? page.peakIndex(series) : page.indexAt(series, time);
        for (const button of page.byId("legend").children) {
            const layer = chart.layers.find(l => l.name === button.dataset.name),
                  held = button.dataset.name === "\0held" && chart.under;
            const other = button.dataset.name === "\0whatif" && page.whatif.of(series);
            const bytes = layer ? layer.values[i] : other ? page.whatif.at(other, series.time[i]) : held ? held.high[page.indexAt(held, series.time[i])] : null;
            button.lastChild.textContent = bytes === null ? "" : page.bytes(bytes);
        }
    }

    page.parts.push(function () {
        plot = page.byId("plot");
        over = plot.querySelector(".over");
        over.addEventListener("pointerdown", pointerDown);
        over.addEventListener("pointermove", pointerMove);
        over.addEventListener("pointerup", pointerUp);
        over.addEventListener("pointercancel", pointerUp);
        over.addEventListener("pointerleave", leave);
        over.addEventListener("dblclick", () => page.set({zoom: null}));
        over.addEventListener("keydown", key);
        plot.addEventListener("wheel", wheel, {passive: false});
        addEventListener("wheel", event => {
            if (!plot.contains(event.target)) pageScrolled = event.timeStamp;
        }, {passive: true});
        addEventListener("scroll", page.tipOff, {passive: true}); /* the chart moves away below it */
        brushOverview(page.byId("overview").querySelector("canvas"));
        page.byId("plot-help").textContent = matchMedia("(pointer: coarse)").matches
            ? "Tap a band to see its lines at that moment, or above the bands to see all lines. Pinch to zoom, or drag in the strip below."
            : "Click a band to see its lines at that moment, or above the bands to see all lines; Shift-click a second moment to compare. " +
              "Wheel or drag zooms, double click shows all.";
    });
    page.view(["place", "layer"], () => {
        if (!chart.series) return;
        over.setAttribute("aria-valuemin", "0");
        over.setAttribute("aria-valuemax", String(chart.series.n - 1));
        over.setAttribute("aria-valuenow", String(page.peakIndex(chart.series)));
        over.setAttribute("aria-valuetext", "the peak, " + page.bytes(chart.series.high[page.peakIndex(chart.series)]));
    });
    page.view(["place", "layer", "zoom", "ink"], drawOverview);
    page.view(["place", "layer", "by", "hidden", "ink"], legend);
    page.view(["moment"], () => { if (chart.series) legendAmounts(); });
})(gpuspyPage);
