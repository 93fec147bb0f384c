/* The chart as a picture: PNG, or SVG drawn by the same functions; with the verdict above it and the legend below. */
"use strict";
(function (page) {
    const MARGIN = 20, HEAD = 58, ROW = 20, FONT = "12px system-ui, sans-serif";

    /* The part of a canvas context that the chart uses; each drawing becomes an element. */
    class Svg {
        constructor() {
            this.out = [];
            this.saved = [];
            this.clips = 0;
            Object.assign(this, {path: "", dash: [], font: FONT, fillStyle: "#000", strokeStyle: "#000", lineWidth: 1, globalAlpha: 1, textAlign: "left", open: 0});
        }
        put(name, attributes, text) {
            const escape = value => String(value).replace(/[&<>"]/g, c => "&#" + c.charCodeAt(0) + ";");
            const words = Object.entries(attributes).filter(([, value]) => value !== null).map(([key, value]) => ` ${key}="${escape(value)}"`);
            this.out.push(`<${name}${words.join("")}` + (text === undefined ? "/>" : `>${escape(text)}</${name}>`));
        }
        get faint() { return this.globalAlpha < 1 ? this.globalAlpha : null; }
        beginPath() { this.path = ""; }
        moveTo(x, y) { this.path += `M${round(x)} ${round(y)}`; }
        lineTo(x, y) { this.path += `L${round(x)} ${round(y)}`; }
        arc(x, y, r) { this.path += `M${round(x - r)} ${round(y)}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0`; }
        rect(x, y, w, h) { this.path += `M${round(x)} ${round(y)}h${round(w)}v${round(h)}h${round(-w)}z`; }
        fill() { this.put("path", {d: this.path, fill: this.fillStyle, opacity: this.faint}); }
        stroke() {
            this.put("path", {d: this.path, fill: "none", stroke: this.strokeStyle, "stroke-width": this.lineWidth,
                "stroke-dasharray": this.dash.length ? this.dash.join(" ") : null, opacity: this.faint});
        }
        fillRect(x, y, w, h) { this.put("rect", {x: round(x), y: round(y), width: round(w), height: round(h), fill: this.fillStyle, opacity: this.faint}); }
        setLineDash(dash) { this.dash = dash; }
        words(text, x, y, more) {
            const [, weight, size] = /^(\d+ )?(\d+)px/.exec(this.font);
            this.put("text", Object.assign({x: round(x), y: round(y), "font-size": size, "font-weight": weight ? weight.trim() : null,
                "text-anchor": {left: null, center: "middle", right: "end"}[this.textAlign]}, more), text);
        }
        fillText(text, x, y) { this.words(text, x, y, {fill: this.fillStyle}); }
        strokeText(text, x, y) { this.words(text, x, y, {fill: "none", stroke: this.strokeStyle, "stroke-width": this.lineWidth, "stroke-linejoin": "round"}); }
        save() {
            this.saved.push({font: this.font, fillStyle: this.fillStyle, strokeStyle: this.strokeStyle, lineWidth: this.lineWidth, dash: this.dash, globalAlpha: this.globalAlpha, textAlign: this.textAlign, open: this.open});
            this.open = 0;
        }
        clip() {
            this.clips++;
            this.out.push(`<clipPath id="c${this.clips}"><path d="${this.path}"/></clipPath><g clip-path="url(#c${this.clips})">`);
            this.open++;
        }
        restore() {
            while (this.open-- > 0) this.out.push("</g>");
            Object.assign(this, this.saved.pop());
        }
        translate(x, y) { this.out.push(`<g transform="translate(${x} ${y})">`); this.open++; }
    }
    const round = value => Math.round(value * 10) / 10;

    /* The legend's rows: as many entries as fit side by side. */
    function legendRows(measure, width) {
        const rows = [[]];
        let x = 0;
        for (const layer of page.chart.shown) {
            const bytes = page.bytes(layer.values[page.peakIndex(page.chart.series)]), need = measure(layer.words + "  " + bytes) + 40;
            if (x && x + need > width) { rows.push([]); x = 0; }
            rows[rows.length - 1].push({layer, bytes, x});
            x += need;
        }
        return rows;
    }

    function paint(c, size, rows, measure) {
        const {chart} = page, verdict = page.byId("verdict").querySelector("h1");
        c.fillStyle = page.ink.card;
        c.fillRect(0, 0, size.width, size.height);
        c.textAlign = "left";
        c.fillStyle = page.ink.ink;
        c.font = "600 15px system-ui, sans-serif";
        c.fillText(cut(page.capital(verdict ? verdict.textContent : ""), measure, chart.width * 12 / 17), MARGIN, 28);
        c.fillStyle = page.ink.soft;
        c.font = FONT;
        c.fillText(cut([page.series().label, page.model.source].map(text => page.clean(text)).filter(Boolean).join(" · "), measure, chart.width), MARGIN, 47);
        c.save();
        c.translate(MARGIN, HEAD);
        chart.paint(c);
        c.restore();
        c.font = FONT;
        rows.forEach((row, k) => row.forEach(({layer, bytes, x}) => {
            const y = HEAD + chart.height + 22 + k * ROW;
            c.textAlign = "left";
            c.fillStyle = chart.colour(layer);
            c.fillRect(MARGIN + x, y - 9, 10, 10);
            c.fillStyle = page.ink.ink;
            c.fillText(layer.words, MARGIN + x + 16, y);
            c.fillStyle = page.ink.soft;
            c.fillText(bytes, MARGIN + x + 22 + measure(layer.words), y);
        }));
    }
    function cut(text, measure, width) {
        let out = text;
        while (measure(out) > width && out.length > 8) out = out.slice(0, -9) + "…";
        return out;
    }
    function prepared() {
        const {chart} = page, ruler = document.createElement("canvas").getContext("2d");
        ruler.font = FONT;
        const measure = text => ruler.measureText(text).width, rows = legendRows(measure, chart.width);
        return {measure, rows, width: chart.width + 2 * MARGIN, height: HEAD + chart.height + 22 + rows.length * ROW};
    }

    page.svg = function () {
        const size = prepared(), c = new Svg();
        paint(c, size, size.rows, size.measure);
        return `<svg xmlns="http://www.w3.org/2000/svg" width="${size.width}" height="${size.height}" font-family="system-ui, sans-serif">` + c.out.join("") + "</svg>";
    };
    page.png = function () {
        const size = prepared(), canvas = document.createElement("canvas"), SHARP = 2;
        canvas.width = size.width * SHARP;
        canvas.height = size.height * SHARP;
        const c = canvas.getContext("2d");
        c.scale(SHARP, SHARP);
        paint(c, size, size.rows, size.measure);
        return new Promise(done => canvas.toBlob(done, "image/png"));
    };

    function save(blob, ending) {
        const link = document.createElement("a"), name = page.base(page.clean(page.model.source || "gpuspy")).replace(/\.[^.]*$/, "");
        link.href = URL.createObjectURL(blob);
        link.download = name + ending;
        link.click();
        setTimeout(() => URL.revokeObjectURL(link.href), 1000);
        page.toast("Saved " + link.download);
    }
    page.parts.push(function () {
        const button = (words, title, onclick) => page.make("button", {type: "button", title, onclick}, words);
        page.fill(page.byId("picture"), button("PNG", "save the chart as PNG", async () => save(await page.png(), ".png")),
            button("SVG", "save the chart as SVG", () => save(new Blob([page.svg()], {type: "image/svg+xml"}), ".svg")));
    });
})(gpuspyPage);
