/* Memory over time: draws the chosen series. Two canvases: the picture, and over it what moves with the pointer. If
 * there are more buckets than columns, a column shows the bucket with the maximum; a fine line shows the minimum around
 * it. */
"use strict";
(function (page) {
    const SITES = 11; /* call sites that are distinguished in the stack; the rest is one band */
    const SITE_COLOURS = page.siteColours = [
        "#4c78a8", "#f2a14a", "#59a08c", "#c9788f", "#8c79c4", "#b5a13b", "#6fb6d6", "#a3623f", "#8a9a5b", "#d28ac0",
        "#5f6f86"
    ];
    const chart = page.chart = {
        top: 36,
        lanes: 0,
        bottom: 22,
        height: 330,
        width: 0,
        hover: null,
        domain: [0, 1],
        brush: null,
        layers: [],
        totals: null,
    };
    const stacks = new Map(); /* by series and how it is stacked */

    chart.stacked = function (index, by) {
        const key = index + "/" + by;
        if (!stacks.has(key)) {
            const series = page.model.series[index];
            const made = page.model.stacked(series, by, by === "site" ? SITES : page.categories.length);
            let layers = made.keys.map((name, i) => ({name, values: made.values[i], colour: null}));
            if (by === "category") {
                layers.sort((a, b) => page.categories.indexOf(a.name) - page.categories.indexOf(b.name));
                layers.forEach(layer => { layer.words = page.categoryName(layer.name); });
            } else {
                layers.forEach((layer, i) => {
                    layer.words = page.clean(layer.name);
                    layer.site = SITE_COLOURS[i % SITE_COLOURS.length];
                    layer.other = made.others && i === layers.length - 1;
                });
            }
            stacks.set(key, layers);
        }
        return stacks.get(key);
    };
    chart.colour = layer =>
        (layer.site ? (layer.other ? page.ink.unknown : layer.site) : page.categoryColour(layer.name));
    chart.siteColour = function (label) {
        const layer = chart.stacked(page.seriesIndex(), "site").find(one => one.name === label);
        return layer ? chart.colour(layer) : page.ink.unknown;
    };
    /* From the beginning to the end; a long time without further changes is shortened. */
    const ends = new Map();
    chart.full = function (series) {
        if (!ends.has(series)) ends.set(series, findEnds(series));
        return ends.get(series);
    };
    function findEnds(series) {
        const first = series.time[0], {events, rows} = page.lanes.of(series);
        let i = series.n - 1;
        while (i > 0 && series.high[i] === series.high[i - 1]) i--;
        let last = series.time[i], end = (page.report.run.processes[series.process] || {}).duration_s || 0;
        for (const e of events) if (isFinite(e.end) && e.end > last) last = e.end;
        for (const row of rows) for (const mark of row) if (isFinite(mark.end) && mark.end > last) last = mark.end;
        if (end - last > 2 * (last - first) && last > first) {
            series.quietUntil = end;
            end = last + 0.2 * (last - first);
        } else {
            end = Math.max(end, series.time[series.n - 1]);
        }
        const start = first < 0.25 * end ? Math.min(0, first) : first;
        return end > start ? [start, end] : [start - 0.5, start + 0.5];
    }
    chart.x = time => ((time - chart.domain[0]) / (chart.domain[1] - chart.domain[0])) * chart.width;
    chart.time = x => chart.domain[0] + (x / chart.width) * (chart.domain[1] - chart.domain[0]);
    chart.y = bytes => chart.top + (1 - bytes / chart.most) * chart.area;

    /* Where a bucket begins and ends. */
    const left = (series, i) => chart.x(series.start[i]);
    const right = (series, i) => (i + 1 < series.n ? chart.x(series.start[i + 1]) : chart.x(chart.full(series)[1]));

    /* Pixels of a column. Where steps are narrower than a few pixels, a column holds two whole ones, so that each shows
     * what a whole step needs. */
    function wide(series) {
        const steps = page.lanes.of(series).steps, starts = steps && steps.starts;
        const step = starts
            ? (chart.x(starts[starts.length - 1]) - chart.x(starts[0])) / (starts.length - 1) / (steps.stride || 1)
            : 0;
        return step > 0 && step < 2.5 ? Math.max(2, Math.ceil(2 * step) + 1) : 2;
    }

    /* Columns of the visible part: bucket, and where it begins and ends. */
    function columns(series, totals) {
        const width = wide(series);
        const [from, to] = chart.domain, n = series.n;
        const first = page.indexAt(series, from), last = Math.min(n - 1, page.indexAt(series, to));
        const out = {index: [], left: [], right: [], low: []};
        const add = (i, a, b, low) => {
            out.index.push(i);
            out.left.push(Math.max(0, a));
            out.right.push(Math.min(chart.width, Math.max(b, a + 1))); /* even the shortest is visible */
            out.low.push(low);
        };
        if (last - first < chart.width / width) {
            for (let i = first; i <= last; i++) add(i, left(series, i), right(series, i), series.low[i]);
            return out;
        }
        for (let i = first; i <= last;) {
            const column = Math.floor(left(series, i) / width);
            let best = i, low = series.low[i];
            for (i++; i <= last && Math.floor(left(series, i) / width) === column; i++) {
                if (totals[i] > totals[best]) best = i;
                if (series.low[i] < low) low = series.low[i];
            }
            const end = (column + 1) * width,
                  next = i <= last ? Math.floor(left(series, i) / width) * width : chart.width;
            add(best, column * width, end, low);
            if (next > end) add(i - 1, end, next, series.low[i - 1]);
        }
        return out;
    }

    function binaryTicks(most, wanted) {
        const unit = Math.pow(1024, Math.floor(Math.log(Math.max(most, 1)) / Math.log(1024)));
        const step = d3.tickStep(0, most / unit, wanted) * unit, out = [];
        const whole = Math.max(1, unit === 1 ? Math.ceil(step) : step);
        for (let v = whole; v <= most * 1.0001; v += whole) out.push(v);
        return {
            values: out,
            words: v => (v / unit).toFixed(whole < unit ? (whole < unit / 10 ? 2 : 1) : 0) + " " +
                page.bytes(unit).split(" ")[1]
        };
    }

    function size(canvas, height) {
        const ratio = devicePixelRatio || 1, width = chart.width;
        if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
            canvas.width = Math.round(width * ratio);
            canvas.height = Math.round(height * ratio);
            canvas.style.height = height + "px";
        }
        const c = canvas.getContext("2d");
        c.setTransform(ratio, 0, 0, ratio, 0, 0);
        c.clearRect(0, 0, width, height);
        c.font = "12px system-ui, sans-serif";
        return c;
    }
    chart.size = size;
    /* Text that is readable on any background. */
    chart.label = function (c, text, x, y, colour, align) {
        c.textAlign = align || "left";
        c.lineWidth = 5; // as wide as the gaps between letters
        c.lineJoin = "round";
        c.strokeStyle = page.ink.card;
        c.strokeText(text, x, y);
        c.fillStyle = colour || page.ink.soft;
        c.fillText(text, x, y);
    };

    chart.prepare = function () {
        const series = page.series(), index = page.seriesIndex();
        chart.series = series;
        chart.width = page.byId("plot").clientWidth;
        if (!series || !chart.width) return false;
        chart.layers = chart.stacked(index, page.stackedBy());
        chart.shown = chart.layers.filter(layer => !page.state.hidden.has(layer.name));
        if (chart.shown.length === chart.layers.length) {
            chart.totals = series.high;
        } else {
            chart.totals = new Float64Array(series.n);
            for (const layer of chart.shown) for (let i = 0; i < series.n; i++) chart.totals[i] += layer.values[i];
        }
        chart.domain = page.state.zoom || chart.full(series);
        chart.under = held();
        return true;
    };

    /* For tensors: the CUDA allocations that hold them; null: these are CUDA allocations, or there are none. */
    function held() {
        const place = page.places[page.state.place];
        if (page.state.layer !== "tensor" || !("device" in place.layers) || place.device < 0) return null;
        return page.state.hidden.has("\0held") ? null : page.model.series[place.layers.device];
    }
    chart.hasHeld = function () {
        const place = page.places[page.state.place];
        return page.state.layer === "tensor" && "device" in place.layers && place.device >= 0;
    };

    function scale(series, cols) {
        let most = 1;
        for (const i of cols.index) if (chart.totals[i] > most) most = chart.totals[i];
        if (chart.under) {
            const from = page.indexAt(chart.under, chart.domain[0]), to = page.indexAt(chart.under, chart.domain[1]);
            for (let i = from; i <= to; i++) if (chart.under.high[i] > most) most = chart.under.high[i];
        }
        most = Math.max(most, page.state.hidden.has("\0whatif") ? 0 : page.whatif.most(series));
        const device = page.device(series.device), total = device && device.total_bytes;
        chart.capacity = series.device >= 0 && total ? total : null;
        if (chart.capacity && (page.state.scale === "device" || most > 0.6 * chart.capacity))
            most = Math.max(most, chart.capacity);
        chart.most = most * 1.04;
    }

    function grid(c) {
        const ticks = binaryTicks(chart.most, chart.area > 200 ? 5 : 3);
        c.strokeStyle = page.ink.grid;
        c.lineWidth = 1;
        for (const v of ticks.values) {
            const y = Math.round(chart.y(v)) + 0.5;
            c.beginPath();
            c.moveTo(0, y);
            c.lineTo(chart.width, y);
            c.stroke();
        }
        return ticks;
    }

    function areas(c, cols) {
        const n = cols.index.length, top = new Float64Array(n);
        const cumulated = chart.shown.map(layer => {
            for (let k = 0; k < n; k++) top[k] += layer.values[cols.index[k]];
            return Float64Array.from(top);
        });
        const ground = chart.y(0);
        for (let j = chart.shown.length - 1; j >= 0; j--) {
            c.beginPath();
            c.moveTo(cols.left[0], ground);
            for (let k = 0; k < n; k++) {
                const y = chart.y(cumulated[j][k]);
                c.lineTo(cols.left[k], y);
                c.lineTo(cols.right[k], y);
            }
            c.lineTo(cols.right[n - 1], ground);
            c.fillStyle = chart.colour(chart.shown[j]);
            c.fill();
        }
    }

    /* The minimum: if memory goes up and down many times within a column. */
    function floor(c, cols) {
        if (chart.shown.length !== chart.layers.length) return;
        c.strokeStyle = page.ink.card;
        c.lineWidth = 1;
        c.globalAlpha = 0.5;
        c.beginPath();
        let on = false;
        cols.index.forEach((i, k) => {
            const busy = cols.low[k] < 0.985 * chart.totals[i], y = chart.y(cols.low[k]);
            if (busy) {
                c[on ? "lineTo" : "moveTo"](cols.left[k], y);
                c.lineTo(cols.right[k], y);
            }
            on = busy;
        });
        c.stroke();
        c.globalAlpha = 1;
    }

    function stepLine(c, series, values) {
        const first = page.indexAt(series, chart.domain[0]), last = page.indexAt(series, chart.domain[1]);
        c.beginPath();
        for (let i = first; i <= last; i++) {
            const y = chart.y(values[i]);
            c[i === first ? "moveTo" : "lineTo"](left(series, i), y);
            c.lineTo(right(series, i), y);
        }
        c.stroke();
    }

    function capacity(c) {
        if (!chart.capacity) return;
        const y = Math.round(chart.y(chart.capacity)) + 0.5, words = "the device: " + page.bytes(chart.capacity);
        if (y < chart.top - 6) { /* on the side where no sign of a failure crosses it */
            const crossed = page.lanes.of(chart.series).events.some(
                e => e.kind !== "sync" && e.kind !== "copy" && chart.x(e.time) > chart.width - 140);
            return chart.label(c, words + " ↑", crossed ? 6 : chart.width - 6, 12, page.ink.faint, crossed ? "left" : "right");
        }
        c.strokeStyle = page.ink.bad;
        c.setLineDash([5, 4]);
        c.beginPath();
        c.moveTo(0, y);
        c.lineTo(chart.width, y);
        c.stroke();
        c.setLineDash([]);
        return chart.label(c, words, 6, y - 5, page.ink.bad);
    }

    function peak(c, series) {
        const i = page.peakIndex(series), x = chart.x(series.time[i]);
        chart.peak = i;
        if (x < 0 || x > chart.width || chart.shown.length !== chart.layers.length) return;
        const y = chart.y(series.high[i]), right = x > chart.width - 130;
        const line = chart.capacity ? Math.round(chart.y(chart.capacity)) : -Infinity; /* the words never cross it */
        const base = Math.max(chart.top + 4, y - 6), crosses = base > line - 3 && base < line + 13;
        c.beginPath();
        c.arc(x, y, 3.5, 0, 7);
        c.fillStyle = page.ink.ink;
        c.fill();
        c.strokeStyle = page.ink.card;
        c.lineWidth = 1.5;
        c.stroke();
        c.font = "600 12px system-ui, sans-serif";
        chart.label(c, "peak " + page.bytes(series.high[i]), x + (right ? -8 : 8), crosses ? line - 5 : base,
            page.ink.ink, right ? "right" : "left");
        c.font = "12px system-ui, sans-serif";
    }

    /* Seconds between two ticks: intervals as on clocks for minutes and hours. */
    const CLOCK = [60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400];
    function timeStep(wanted) {
        const [from, to] = chart.domain, step = d3.tickStep(from, to, wanted);
        if (step < 45) return step;
        return CLOCK.find(one => (to - from) / one <= 1.5 * wanted) || step;
    }

    function timeAxis(c) {
        const y = chart.top + chart.area + chart.lanes;
        const wanted = Math.max(3, Math.floor(chart.width / 130)),
              step = timeStep(wanted), [from, to] = chart.domain,
              ticks = step < 60 ? d3.ticks(from, to, wanted) : d3.range(Math.ceil(from / step) * step, to, step);
        c.strokeStyle = page.ink.line;
        c.beginPath();
        c.moveTo(0, y + 0.5);
        c.lineTo(chart.width, y + 0.5);
        c.stroke();
        for (const t of ticks) {
            const x = chart.x(t), words = page.tick(t, step), half = 3.5 * words.length; /* about, in pixels */
            if (x < half || x > chart.width - half) continue;
            chart.label(c, words, x, y + 15, page.ink.faint, "center");
        }
    }

    chart.draw = function () {
        if (!chart.prepare()) return;
        const canvas = page.byId("plot").querySelector(".base"), series = chart.series;
        const small = chart.width < 560;
        chart.area = small ? 210 : 290;
        chart.lanes = page.lanes.layout(series);
        const height = chart.height = chart.top + chart.area + chart.lanes + chart.bottom;
        chart.cols = columns(series, chart.totals);
        scale(series, chart.cols);
        chart.paint(size(canvas, height));
        chart.drawOver();
    };

    /* Draws what chart.draw prepared, on any context. */
    chart.paint = function (c) {
        const {series, cols} = chart;
        c.font = "12px system-ui, sans-serif";
        const ticks = grid(c);
        if (cols.index.length) {
            areas(c, cols);
            floor(c, cols);
        }
        if (chart.under) {
            c.strokeStyle = page.ink.soft;
            c.setLineDash([4, 3]);
            c.lineWidth = 1.25;
            stepLine(c, chart.under, chart.under.high);
            c.setLineDash([]);
        }
        page.whatif.draw(c, chart);
        capacity(c);
        for (const v of ticks.values) {
            if (chart.capacity && Math.abs(chart.y(v) - chart.y(chart.capacity)) < 16) continue;
            chart.label(c, ticks.words(v), 6, chart.y(v) - 4, page.ink.soft);
        }
        peak(c, series);
        page.lanes.draw(c, series);
        timeAxis(c);
    };

    /* The band at a height of a moment; null above the stack. */
    chart.bandAt = function (i, y) {
        let top = 0;
        for (const layer of chart.shown) {
            top += layer.values[i];
            if (y >= chart.y(top) && layer.values[i] > 0) return y <= chart.y(0) ? layer : null;
        }
        return null;
    };

    function upright(c, x, colour, dashed) {
        c.strokeStyle = colour;
        c.lineWidth = dashed ? 1 : 1.5;
        c.setLineDash(dashed ? [3, 3] : []);
        c.beginPath();
        c.moveTo(Math.round(x) + 0.5, chart.top - 4);
        c.lineTo(Math.round(x) + 0.5, chart.top + chart.area + chart.lanes);
        c.stroke();
        c.setLineDash([]);
    }

    /* What moves: crosshair, the chosen moment and the pinned one, the range being dragged. */
    chart.drawOver = function () {
        if (!chart.series || !chart.width) return;
        const c = size(page.byId("plot").querySelector(".over"), chart.height), series = chart.series;
        const {moment, pin} = page.state;
        if (chart.brush) {
            c.fillStyle = page.ink.accent;
            c.globalAlpha = 0.14;
            c.fillRect(Math.min(...chart.brush), chart.top, Math.abs(chart.brush[1] - chart.brush[0]), chart.area);
            c.globalAlpha = 1;
        }
        const both = pin !== null && moment !== null;
        for (const [time, name, colour] of [[pin, "A", page.ink.more], [moment, both ? "B" : "", page.ink.accent]]) {
            const x = time === null ? -1 : chart.x(time);
            if (x < 0 || x > chart.width) continue;
            upright(c, x, colour, false);
            c.fillStyle = colour;
            c.beginPath();
            c.moveTo(x - 6, chart.top - 12);
            c.lineTo(x + 6.5, chart.top - 12);
            c.lineTo(x, chart.top - 4);
            c.fill();
            if (name) chart.label(c, name, x, chart.top - 14, colour, "center");
        }
        if (chart.hover !== null) {
            const i = page.indexAt(series, chart.hover), x = chart.x(series.time[i]);
            upright(c, x, page.ink.soft, true);
            c.fillStyle = page.ink.ink;
            c.beginPath();
            c.arc(x, chart.y(chart.totals[i]), 3, 0, 7);
            c.fill();
        }
    };
    page.view(["place", "layer", "by", "scale", "zoom", "hidden", "ink"], () => chart.draw());
    page.view(["moment", "pin"], () => chart.drawOver());
})(gpuspyPage);
