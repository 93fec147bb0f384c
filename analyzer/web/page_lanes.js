/* Above the chart: failures, retries, flushes, waits; below it: the program's own NVTX ranges and steps. Kinds differ
 * in form, not only in colour. */
"use strict";
(function (page) {
    const LANE = 16, MOST_LANES = 4; /* glyphs are 8 px from the top, dashes at `dash` */
    const kinds = {
        oom: {words: "out of memory", colour: "bad", order: 0},
        retry: {words: "retry", colour: "warn", order: 1},
        flush: {words: "cache flush", colour: "warn", order: 2},
        mark: {words: "mark", colour: "soft", order: 3},
        sync: {words: "wait", colour: "soft", order: 4, dash: 17},
        copy: {words: "copy", colour: "accent", order: 5, dash: 23},
    };
    const lanes = page.lanes = {kinds};
    const known = new Map();

    lanes.of = function (series) {
        if (!known.has(series)) {
            const mine = e => e.process === series.process &&
                (e.device === undefined || e.device === null || e.device < 0 || series.device < 0 ||
                    e.device === series.device);
            const events = page.model.events.filter(mine).sort((a, b) => a.time - b.time);
            const marks = page.model.marks.filter(m => m.process === series.process),
                  isMoment = m => m.kind !== "push" && m.kind !== "start", moments = marks.filter(isMoment);
            for (const m of moments) events.push({time: m.start, end: m.start, kind: "mark", text: m.name, count: 1});
            if (moments.length) events.sort((a, b) => a.time - b.time);
            const steps = page.model.steps.find(s => s.process === series.process && s.starts.length > 1) || null;
            known.set(series, {events, steps, rows: nest(marks.filter(m => !isMoment(m)))});
        }
        return known.get(series);
    };

    /* Ranges by depth: one that begins within another is below it. */
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

    lanes.layout = series => lanes.of(series).rows.length * LANE + (lanes.of(series).rows.length ? 8 : 6);

    function glyph(c, kind, x, y) {
        c.fillStyle = page.ink[kinds[kind].colour];
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
        } else {
            c.arc(x, y, 2.5, 0, 7); c.fill();
        }
    }
    const FEW = 4; /* up to so many failures get a line each; of more, only the fatal ones */
    lanes.lined = function (events) {
        const failures = events.filter(e => e.kind === "oom");
        return failures.length <= FEW ? failures : failures.filter(e => e.fatal);
    };
    const kindOf = e => kinds[kinds[e.kind] ? e.kind : "mark"];

    /* Waits and copies as dashes of their duration, rarer events as glyphs over them. */
    function drawEvents(c, events) {
        const {chart} = page, [from, to] = chart.domain, filled = {}, last = {};
        for (const e of events) {
            const kind = kindOf(e);
            if (!kind.dash || e.end < from || e.time > to) continue;
            const left = Math.max(0, chart.x(e.time)),
                  right = Math.max(left + 1.5, Math.min(chart.width, chart.x(e.end)));
            if (right <= filled[e.kind]) continue; /* within a dash that was drawn */
            c.fillStyle = page.ink[kind.colour];
            c.globalAlpha = 0.7;
            c.fillRect(Math.max(left, filled[e.kind] || 0), kind.dash, right - Math.max(left, filled[e.kind] || 0), 4);
            filled[e.kind] = right;
        }
        c.globalAlpha = 1;
        const lined = new Set(lanes.lined(events));
        for (let order = 3; order >= 0; order--) {
            for (const e of events) {
                if (kindOf(e).order !== order || e.time < from || e.time > to) continue;
                const x = chart.x(e.time);
                const line = lined.has(e);
                if (!line && x - last[order] < 7) continue;
                last[order] = x;
                if (line) {
                    c.fillStyle = page.ink.bad;
                    c.globalAlpha = 0.55;
                    c.fillRect(x - 0.5, 12, 1, chart.top - 12 + chart.area);
                    c.globalAlpha = 1;
                }
                glyph(c, order ? (kinds[e.kind] ? e.kind : "mark") : "oom", x, 8);
            }
        }
    }
    function drawSteps(c, steps) {
        const {chart} = page, ground = chart.top + chart.area,
              between = (chart.x(steps.starts[steps.starts.length - 1]) - chart.x(steps.starts[0])) /
            (steps.starts.length - 1);
        if (between < 3) return;
        c.fillStyle = page.ink.soft;
        for (const start of steps.starts) {
            const x = chart.x(start);
            if (x >= 0 && x <= chart.width) c.fillRect(x, ground, 1, 5);
        }
    }
    /* "step 12 of 40" */
    lanes.step = function (series, time) {
        const {steps} = lanes.of(series);
        if (!steps) return null;
        const k = d3.bisectRight(steps.starts, time) - 1;
        if (k < 0 || k >= steps.starts.length - 1) return null;
        return "step " + page.count(k * (steps.stride || 1) + 1) + (steps.stride > 1 ? " or so" : "") + " of " +
            page.count(steps.n);
    };
    /* The meaning of the signs that are shown. */
    lanes.key = function (series) {
        const {events, steps, rows} = lanes.of(series),
                              there = new Set(events.map(e => (kinds[e.kind] ? e.kind : "mark")));
        const lined = lanes.lined(events).length, many = lined < events.filter(e => e.kind === "oom").length;
        const signs = [["oom", "✕ out of memory" + (many && lined ? " (with a line: fatal)" : "")], ["retry", "▲ retry"], ["flush", "◆ cache flush"], ["mark", "● mark"]]
                          .filter(s => there.has(s[0]))
                          .map(s => s[1]);
        if (there.has("sync")) signs.push("grey dashes: waits for the GPU");
        if (there.has("copy")) signs.push("blue dashes: copies");
        if (steps) signs.push("ticks below: steps, by " + page.clean(steps.by || steps.source || "marks"));
        if (rows.length) signs.push("bars below: " + page.rangeWord() + " ranges");
        if (series.high.some((high, i) => series.low[i] < 0.985 * high)) {
            signs.push("fine line: the minimum around a moment");
        }
        page.chart.full(series);
        if (series.quietUntil) signs.push("then nothing changes until " + page.seconds(series.quietUntil));
        return signs.length ? page.capital(signs.join(" · ")) + "." : "";
    };

    lanes.draw = function (c, series) {
        const {rows} = lanes.of(series), chart = page.chart, top = chart.top + chart.area + 7;
        c.textAlign = "left";
        rows.forEach((row, depth) => {
            const y = top + depth * LANE;
            let filled = -1;
            for (const mark of row) {
                if (mark.end < chart.domain[0]) continue;
                if (mark.start > chart.domain[1]) break;
                const left = Math.max(0, chart.x(mark.start)), right = Math.min(chart.width, chart.x(mark.end));
                if (right <= filled) continue; /* within a pixel that was drawn */
                const width = Math.max(1, right - left - (right - left >= 4 ? 1 : 0));
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
        const {events, steps} = lanes.of(series);
        if (steps) drawSteps(c, steps);
        drawEvents(c, events);
    };

    /* Events within a few pixels of a moment, the most severe first; and the ranges around it, outermost first. */
    lanes.near = function (series, x) {
        const chart = page.chart, room = 4;
        const {events} = lanes.of(series);
        const from = chart.time(x - room), to = chart.time(x + room), out = [];
        let i = d3.bisector(e => e.time).left(events, from);
        for (let k = Math.max(0, i - 60); k < i; k++)
            if (events[k].end >= from) out.push(events[k]); /* that last until then */
        for (; i < events.length && events[i].time <= to; i++) out.push(events[i]);
        return out.sort((a, b) => kindOf(a).order - kindOf(b).order);
    };
    lanes.around = (series, time) =>
        lanes.of(series)
            .rows.map(row => row.filter(mark => mark.start <= time && time <= mark.end).pop())
            .filter(Boolean)
            .map(mark => mark.name);
    lanes.words = function (e) {
        const more = [];
        if (e.bytes) more.push((e.kind === "oom" || e.kind === "retry" ? "requested " : "") + page.bytes(e.bytes));
        if (e.seconds > 0) more.push("took " + page.seconds(e.seconds));
        return (e.kind === "sync" ? "waits: " : "") + page.clean(e.text || kindOf(e).words) +
            (more.length ? " (" + more.join(", ") + ")" : "");
    };
})(gpuspyPage);
