/* Over the chart what happened (failures, retries, flushes, waits), under it what the program says of itself (NVTX
 * ranges, steps). Kinds are told apart by form, not only by colour. */
"use strict";
(function (page) {
    const LANE = 16, MOST_LANES = 4;
    const kinds = {
        oom: {words: "out of memory", colour: "bad", order: 0},
        retry: {words: "retry", colour: "warn", order: 1},
        flush: {words: "cache flush", colour: "warn", order: 2},
        sync: {words: "wait", colour: "faint", order: 4},
        step: {words: "step", colour: "soft", order: 5},
        mark: {words: "mark", colour: "soft", order: 3},
    };
    const lanes = page.lanes = {kinds};
    const known = new Map();

    lanes.of = function (series) {
        if (!known.has(series)) {
            const mine = e => e.process === series.process && (e.device === undefined || e.device === null || e.device < 0 || series.device < 0 || e.device === series.device);
            const events = page.model.events.filter(mine).sort((a, b) => a.time - b.time);
            known.set(series, {events, rows: nest(page.model.marks.filter(m => m.process === series.process))});
        }
        return known.get(series);
    };

    /* Ranges by depth: one that begins within another stands below it. */
    function nest(marks) {
        const rows = [], ends = [];
        for (const mark of marks.slice().sort((a, b) => a.start - b.start || b.end - a.end)) {
            const end = mark.end === null || mark.end === undefined ? Infinity : mark.end;
            let depth = 0;
            while (depth < ends.length && ends[depth] > mark.start + 1e-12) depth++;
            if (depth >= MOST_LANES) continue;
            ends[depth] = end;
            ends.length = depth + 1;
            (rows[depth] = rows[depth] || []).push({name: page.clean(mark.name), start: mark.start, end});
        }
        return rows;
    }

    lanes.layout = series => lanes.of(series).rows.length * LANE + (lanes.of(series).rows.length ? 6 : 0);

    function glyph(c, kind, x, y) {
        c.fillStyle = page.ink[(kinds[kind] || kinds.mark).colour];
        c.beginPath();
        if (kind === "oom") {
            c.lineWidth = 2.6;
            c.strokeStyle = page.ink.bad;
            c.moveTo(x - 4, y - 4); c.lineTo(x + 4, y + 4); c.moveTo(x + 4, y - 4); c.lineTo(x - 4, y + 4);
            c.stroke();
        } else if (kind === "retry") {
            c.moveTo(x, y - 5); c.lineTo(x + 5, y + 4); c.lineTo(x - 5, y + 4); c.fill();
        } else if (kind === "flush") {
            c.moveTo(x, y - 5); c.lineTo(x + 4, y); c.lineTo(x, y + 5); c.lineTo(x - 4, y); c.fill();
        } else if (kind === "sync") {
            c.fillRect(x - 0.5, y + 2, 1, 5);
        } else {
            c.arc(x, y, 2.5, 0, 7); c.fill();
        }
    }

    function drawEvents(c, series) {
        const last = {}, y = 10;
        const events = lanes.of(series).events;
        for (let order = 5; order >= 0; order--) {
            for (const e of events) {
                const kind = kinds[e.kind] ? e.kind : "mark";
                if (kinds[kind].order !== order || e.time < page.chart.domain[0] || e.time > page.chart.domain[1]) continue;
                const x = page.chart.x(e.time);
                if (last[kind] !== undefined && x - last[kind] < (kind === "sync" || kind === "step" ? 1.5 : 7) && kind !== "oom") continue;
                last[kind] = x;
                if (kind === "step") {
                    c.fillStyle = page.ink.line;
                    c.fillRect(x, page.chart.top + page.chart.area - 5, 1, 5);
                    continue;
                }
                if (kind === "oom") {
                    c.fillStyle = page.ink.bad;
                    c.globalAlpha = 0.55;
                    c.fillRect(x - 0.5, page.chart.top - 12, 1, page.chart.area + 12);
                    c.globalAlpha = 1;
                }
                glyph(c, kind, x, y);
            }
        }
    }

    lanes.draw = function (c, series) {
        const {rows} = lanes.of(series), chart = page.chart, top = chart.top + chart.area + 4;
        c.textAlign = "left";
        rows.forEach((row, depth) => {
            const y = top + depth * LANE;
            let filled = -1;
            for (const mark of row) {
                if (mark.end < chart.domain[0]) continue;
                if (mark.start > chart.domain[1]) break;
                const left = Math.max(0, chart.x(mark.start)), right = Math.min(chart.width, chart.x(mark.end));
                if (right <= filled) continue; /* what is within a pixel that is drawn */
                const width = Math.max(1, right - left - 1);
                c.fillStyle = page.ink.line;
                c.fillRect(left, y, width, LANE - 2);
                filled = Math.max(right, left + 1);
                if (width > 26) {
                    c.save();
                    c.beginPath();
                    c.rect(left, y, width - 3, LANE);
                    c.clip();
                    c.font = "11px system-ui, sans-serif";
                    c.fillStyle = page.ink.soft;
                    c.fillText(mark.name, left + 4, y + 11);
                    c.restore();
                }
            }
        });
        c.font = "12px system-ui, sans-serif";
        drawEvents(c, series);
    };

    /* Events within a few pixels of a moment, the gravest first; and the ranges around it, outermost first. */
    lanes.near = function (series, x) {
        const chart = page.chart, room = 4;
        const {events} = lanes.of(series);
        const from = chart.time(x - room), to = chart.time(x + room), out = [];
        let i = d3.bisector(e => e.time).left(events, from);
        for (; i < events.length && events[i].time <= to; i++) {
            out.push(events[i]);
        }
        const order = e => (kinds[e.kind] || kinds.mark).order;
        return out.sort((a, b) => order(a) - order(b));
    };
    lanes.around = (series, time) => lanes.of(series).rows
        .map(row => row.filter(mark => mark.start <= time && time <= mark.end).pop()).filter(Boolean).map(mark => mark.name);
    lanes.words = e => (kinds[e.kind] || kinds.mark).words + (e.text ? ": " + page.clean(e.text) : "");
})(gpuspyPage);
