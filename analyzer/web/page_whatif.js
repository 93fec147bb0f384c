/* The what-if's curve over the recorded one: reserved memory as a line. Draws nothing if the page has no what-if, or
 * shows another process or device. */
"use strict";
(function (page) {
    const whatif = page.whatif = {};

    /* The what-if of the current process and device, or null. */
    whatif.of = function (series) {
        const data = page.data && page.data.whatif;
        return data && series && series.device === data.device && series.process === data.process ? data : null;
    };
    const part = (data, time) =>
        Math.max(0, Math.min(data.reserved.length - 1, Math.floor((time / data.end_s) * data.reserved.length)));
    whatif.at = (data, time) => data.reserved[part(data, time)];
    whatif.most = function (series) {
        const data = whatif.of(series);
        return data ? Math.max(...data.reserved.filter(v => v !== null), 0) : 0;
    };
    whatif.name = data => "what if " + page.clean(data.name) + " (replayed)";

    function line(c, chart, data, values) {
        let on = false;
        c.beginPath();
        for (let i = 0; i < values.length; i++) {
            if (values[i] === null) break;
            const from = chart.x((i / values.length) * data.end_s), to = chart.x(((i + 1) / values.length) * data.end_s);
            if (to < 0 || from > chart.width) continue;
            c[on ? "lineTo" : "moveTo"](from, chart.y(values[i]));
            c.lineTo(to, chart.y(values[i]));
            on = true;
        }
        c.stroke();
    }

    whatif.draw = function (c, chart) {
        const data = whatif.of(chart.series);
        if (!data || page.state.hidden.has("\0whatif")) return;
        c.save();
        c.beginPath();
        c.rect(0, 0, chart.width, chart.top + chart.area);
        c.clip();
        c.strokeStyle = page.ink.card;
        c.lineWidth = 4;
        line(c, chart, data, data.reserved);
        c.strokeStyle = page.ink.accent;
        c.lineWidth = 2;
        line(c, chart, data, data.reserved);
        if (data.capacity_bytes && data.capacity_bytes !== chart.capacity) {
            const y = Math.round(chart.y(data.capacity_bytes)) + 0.5;
            c.setLineDash([2, 3]);
            c.lineWidth = 1;
            c.beginPath();
            c.moveTo(0, y);
            c.lineTo(chart.width, y);
            c.stroke();
            c.setLineDash([]);
            chart.label(c, "what-if device: " + page.bytes(data.capacity_bytes), chart.width - 6, y - 5, page.ink.accent, "right");
        }
        if (!data.fits) {
            const x = chart.x(data.oom_s), last = data.reserved.indexOf(null);
            const y = chart.y(data.reserved[(last < 0 ? data.reserved.length : last) - 1] || 0);
            c.lineWidth = 2.5;
            c.strokeStyle = page.ink.bad;
            c.beginPath();
            for (const side of [-1, 1]) {
                c.moveTo(x - 5 * side, y - 5);
                c.lineTo(x + 5 * side, y + 5);
            }
            c.stroke();
            chart.label(c, "out of memory", x + (x > chart.width - 110 ? -9 : 9), y + 4, page.ink.bad,
                x > chart.width - 110 ? "right" : "left");
        }
        c.restore();
    };

    function verdict() {
        const data = page.data && page.data.whatif, node = page.byId("whatif");
        node.hidden = !data;
        if (!data) return;
        const ends = data.fits
            ? data.request_fits ? "the request that failed fits" : data.recorded_fits ? "the run completes" : "memory does not run out"
            : "out of memory at " + page.seconds(data.oom_s);
        page.fill(node, page.make("strong", null, page.capital(whatif.name(data)) + ": "), ends,
            "; peak reserved " + page.bytes(data.peak_reserved_bytes) + " instead of " +
                page.bytes(data.recorded_reserved_bytes) + ". ",
            data.exact ? "The replay of the recorded settings is exact." : "Inexact: the replay of the recorded settings differs from the recording.",
            data.doubts.map((text) => " " + text + ".").join(""));
    }
    page.parts.push(verdict);
})(gpuspyPage);
