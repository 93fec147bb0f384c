/* How numbers and names are printed: as in the terminal report (analyzer/base/units.c). Names come from a recording and
 * may contain anything: they only ever become text nodes, without control characters and of limited length. */
"use strict";
(function (page) {
    const LONGEST = 400;

    /* As printf, which rounds a tie to the even digit: 164.125 is 164.12, where toFixed() has 164.13. */
    page.fixed = function (value, digits) {
        const up = value.toFixed(digits), tie = /^50*$/.test(value.toFixed(30).slice(up.length + (digits ? 0 : 1)));
        return tie && Number(up[up.length - 1]) % 2 ? (Number(up) - 10 ** -digits).toFixed(digits) : up;
    };
    function three(value, unit) {
        return value.toFixed(value < 9.995 ? 2 : value < 99.95 ? 1 : 0) + " " + unit;
    }
    page.bytes = function (bytes) {
        if (bytes === null || bytes === undefined || !isFinite(bytes)) return "?";
        const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        let value = Math.abs(bytes), u = 0;
        while (u + 1 < units.length && value >= (u ? 1023.995 : 1024)) { value /= 1024; u++; }
        return (bytes < 0 ? "-" : "") + (u ? page.fixed(value, 2) : value.toFixed(0)) + " " + units[u];
    };
    page.signed = bytes => (bytes > 0 ? "+" : "") + page.bytes(bytes);
    page.rate = function (rate) {
        if (!Number.isFinite(rate) || rate < 0) return ""; // also null: unknown
        const units = ["B/s", "kB/s", "MB/s", "GB/s", "TB/s"];
        let u = 0;
        while (u + 1 < units.length && rate >= 999.5) { rate /= 1000; u++; }
        return three(rate, units[u]);
    };
    /* A recording without times, whose entries are 1 us apart, counts them. */
    page.lacks = what => Boolean(page.report && page.report.run && (page.report.run.lacks || []).includes(what));
    page.isTimeless = () => page.lacks("times");
    page.seconds = function (s) {
        if (s === null || s === undefined || !(s >= 0)) return "?";
        if (page.isTimeless()) return page.plural(Math.round(s * 1e6), "entry", "entries");
        if (s === 0) return "0 s";
        if (s < 0.5e-9) return "<1 ns";
        if (s < 999.5e-9) return (s * 1e9).toFixed(0) + " ns";
        if (s < 999.5e-6) return three(s * 1e6, "us");
        if (s < 999.5e-3) return three(s * 1e3, "ms");
        if (s < 59.95) return three(s, "s");
        const two = n => String(n).padStart(2, "0");
        if (s < 3599.5) return Math.floor(Math.round(s) / 60) + " min " + two(Math.round(s) % 60) + " s";
        if (s < 86370) return Math.floor(Math.round(s / 60) / 60) + " h " + two(Math.round(s / 60) % 60) + " min";
        return Math.floor(Math.round(s / 3600) / 24) + " d " + Math.round(s / 3600) % 24 + " h";
    };
    /* "2 min 37 s", "1 h 02 min 07 s", "3 d 1 h 02 min", with this many decimals of a second; or without the seconds. */
    function clock(s, digits, seconds) {
        const whole = Number(s.toFixed(digits)), two = n => String(n).padStart(2, "0");
        const d = Math.floor(whole / 86400), h = Math.floor(whole / 3600) % 24, m = Math.floor(whole / 60) % 60;
        const rest = (whole - 60 * Math.floor(whole / 60)).toFixed(digits).padStart(digits ? digits + 3 : 2, "0");
        return (d ? d + " d " : "") + (d || h ? h + " h " + two(m) : m) + " min" + (seconds ? " " + rest + " s" : "");
    }
    /* A moment: printed like any time, but with the resolution of the visible part of the run, if that is finer. */
    page.moment = function (s, span) {
        if (s === null || s === undefined) return "?";
        const plain = s >= 86370 ? 3600 : s >= 3599.5 ? 60 : s >= 59.95 ? 1 : Math.pow(10, Math.floor(Math.log10(Math.max(s, 1e-9))) - 2);
        if (!(span > 0) || span >= 200 * plain || page.isTimeless()) return page.seconds(s);
        if (s >= 60 && span > 5) return clock(s, span > 300 ? 0 : span > 30 ? 1 : 2, true);
        const digits = Math.min(9, Math.max(0, 2 - Math.floor(Math.log10(span / 1.0001))));
        if (s < 1 && digits >= 4) return (s * 1e3).toFixed(Math.min(6, digits - 3)) + " ms";
        return s.toFixed(digits) + " s";
    };
    /* On an axis whose ticks are this many seconds apart. */
    page.tick = function (s, step) {
        if (page.isTimeless()) return page.seconds(s);
        const digits = Math.max(0, Math.ceil(-Math.log10(step) - 1e-9));
        if (s < 60 || digits > 2)
            return digits > 1 && s < 1 ? (s * 1e3).toFixed(Math.max(0, digits - 3)) + " ms" : s.toFixed(digits) + " s";
        return clock(s, digits, step % 60 !== 0);
    };
    page.count = n => (n === null || n === undefined ? "?" : Math.round(n).toString().replace(/\B(?=(\d{3})+$)/g, ","));
    page.share = function (share) {
        if (share === null || share === undefined || !(share >= 0) || !isFinite(share)) return "";
        const percent = share * 100;
        if (percent === 0) return "0 %";
        if (percent < 0.1) return "<0.1 %";
        return (percent < 9.95 ? percent.toFixed(1) : percent.toFixed(0)) + " %";
    };
    page.plural = (n, one, many) => page.count(n) + " " + (n === 1 ? one : many || one + "s");
    page.capital = word => word.charAt(0).toUpperCase() + word.slice(1);
    page.categoryName = word =>
        (word && word[0] === "\0" ? page.clean(word.slice(1)) : (word || "unknown").replace(/_/g, " ").replace("kv ", "KV "));
    page.categoryColour = word =>
        (word && word[0] === "\0" ? page.chart.siteColour(word.slice(1)) : page.ink[word] || page.ink.unknown);
    /* What determines a colour: the category; if no category is known, the line, as in the chart. */
    page.tone = (category, label) => (page.isPlain(page.series()) ? "\0" + label : category);

    /* A name for display: control characters visible, no change of writing direction, cut in the middle. */
    page.clean = function (name, longest = LONGEST) {
        if (name === null || name === undefined) return "";
        let text = String(name);
        if (text.length > longest) text = text.slice(0, longest * 0.6) + " … " + text.slice(-longest * 0.3);
        return text.replace(
            /[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]/gu, c => {
                const code = c.charCodeAt(0);
                return code < 32 ? String.fromCharCode(0x2400 + code) : "\ufffd";
            });
    };
    /* A number and its unit stay on one line. */
    page.whole = text =>
        text.replace(/(\d) (B|[KMGT]iB|[kMGT]B\/s|%|h|min|s|ms|us|ns|steps?|blocks?)(?![\w])/g, "$1\u00a0$2");
    /* A long name may break between its parts. */
    page.breakable = text => text.split(" ").flatMap((word, i) => [i ? " " : "",
        ...(word.length < 25 ? [word] : word.split(/(?<=[_/])(?=\w)|(?<=\w\.)(?=[A-Za-z_]{4})|(?<=[a-z])(?=[A-Z])/)
                                           .flatMap((part, k) => (k ? [page.make("wbr"), part] : [part])))]);
    page.breakableCode = text => text.split(/(?<=[=(,])(?=\w)/).flatMap((part, i) => (i ? [page.make("wbr"), part] : [part]));
    page.base = file => (file ? file.slice(file.lastIndexOf("/") + 1) : "");
    /* PyTorch's and Python's own frames; of these, those between a module and its forward. */
    const PLUMBING = new RegExp([
        /[/\\](site|dist)-packages[/\\](torch|functorch)[/\\]/,
        /[/\\]lib[/\\]python[\d.]+[/\\](?!(site|dist)-packages)/,
        /^<frozen|^<string>/
    ].map(part => part.source)
                                    .join("|"));
    const GLUE = /[/\\]torch[/\\]nn[/\\]modules[/\\]module\.py$/;
    page.isPlumbing = frame => !frame.file || PLUMBING.test(frame.file);
    page.isGlue = frame => Boolean(frame.file) && GLUE.test(frame.file) && frame.function.includes("call_impl");
    const LIBRARY = /[/\\](site|dist)-packages[/\\]|[/\\]lib[/\\]python\d|^<frozen|^<string>|^<built-in/;
    const SYSTEM = /^\/(usr\/)?lib|[/\\](site|dist)-packages[/\\]|\.so(\.|$)/,
          SOURCE = /^\/|\.(c|cc|cpp|cxx|cu|h|hpp|rs)$/;
    page.isNative = frame => Boolean(frame.native) || frame.kind === "native";
    page.isLibrary = frame => (!frame.file ? true
            : page.isNative(frame)         ? !SOURCE.test(frame.file) || SYSTEM.test(frame.module || "")
                                           : LIBRARY.test(frame.file));

    /* "void a::f<int>(float) const" → "a::f", as in the terminal. Names with operators, lambdas or brackets stay whole. */
    page.shortFunction = function (name) {
        if (!name || !name.includes("(") || /operator|lambda|decltype|[{[]|^<|\(\*/.test(name)) return name;
        const own = "(anonymous namespace)", parts = name.split(own);
        let depth = 0, out = "";
        for (const c of parts.join("\0")) {
            if (c === "(" && !depth) break;
            depth += (c === "<") - (c === ">" && depth > 0);
            if (!depth && c !== ">") out += c;
        }
        return out.trim().split(" ").pop().replace(/\0/g, own) || name;
    };
    /* A site of the report as text: "train.py:12 in step". */
    page.siteText = function (site) {
        if (!site) return "no stack was recorded";
        const where = site.file ? page.base(site.file) + (site.line ? ":" + site.line : "") : "";
        const called = page.isNative(site) ? page.shortFunction(site.function) : site.function;
        const what = site.operation && site.operation !== "Engine" ? called + " → " + site.operation : called;
        return page.clean(where && what ? where + " in " + what : where || what || "unknown");
    };
    page.siteCopy = site => (site && site.file ? site.file + (site.line ? ":" + site.line : "") : page.siteText(site));
    page.frameText = function (frame) {
        const where = frame.file ? page.base(frame.file) + (frame.line ? ":" + frame.line : "") : "";
        return page.clean((frame.function || "?") + (where ? " (" + where + ")" : ""));
    };

    /* ------------------------------------------------------------ nodes */
    /* page.make("p", {class: "note", title: …}, children…): children are nodes or text; nothing is ever parsed. */
    page.make = function (name, attributes, ...children) {
        const node = document.createElement(name);
        for (const [key, value] of Object.entries(attributes || {})) {
            if (value === null || value === undefined || value === false) continue;
            if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
            else node.setAttribute(key, value === true ? "" : value);
        }
        node.append(
            ...children.flat(Infinity).filter(child => child !== null && child !== undefined && child !== false));
        return node;
    };
    page.byId = id => document.getElementById(id);
    page.fill = function (node, ...children) {
        node.replaceChildren(
            ...children.flat(Infinity).filter(child => child !== null && child !== undefined && child !== false));
        return node;
    };
    /* A square of a band's colour; or a piece of a curve, "dashed" or "solid" as in the chart. */
    page.swatch = function (colour, curve) {
        const node = page.make("i", {class: curve ? "swatch curve" : "swatch", "aria-hidden": "true"});
        if (curve) node.style.borderTop = "2px " + curve + " " + colour; else node.style.background = colour;
        return node;
    };
    /* Marks the words that match the filter. */
    page.marked = function (text) {
        const query = page.state.query.trim().toLowerCase();
        if (!query) return [text];
        const lower = text.toLowerCase(), out = [];
        let from = 0;
        for (let at = lower.indexOf(query); at >= 0; at = lower.indexOf(query, from)) {
            out.push(text.slice(from, at), page.make("mark", null, text.slice(at, at + query.length)));
            from = at + query.length;
        }
        return out.concat(text.slice(from));
    };
    page.matches = text => text.toLowerCase().includes(page.state.query.trim().toLowerCase());

    page.copy = async function (text) {
        try {
            await navigator.clipboard.writeText(text);
        } catch (e) { /* a page opened from a file has no clipboard in some browsers */
            const box = page.make("textarea", {readonly: true});
            box.value = text;
            document.body.append(box);
            box.select();
            document.execCommand("copy");
            box.remove();
        }
        page.toast("Copied " + page.clean(text));
    };
    page.toast = function (text) {
        const toast = page.byId("toast");
        toast.textContent = text;
        toast.hidden = false;
        clearTimeout(page.toastTimer);
        page.toastTimer = setTimeout(() => { toast.hidden = true; }, 1800);
    };
    page.siteButton = (text, copied) => page.make("button",
        {class: "site", type: "button", title: "copies " + page.clean(copied), onclick: () => page.copy(copied)},
        page.marked(text));
    /* A sentence in which each `file.py:12` can be copied, and code between backticks looks like code. */
    page.sentence = function (text) {
        return page.whole(page.clean(text, 3000))
            .split(/(`[^`]+`|[\w./<>-]+\.(?:py|cpp|cc|c|cu|h|rs):\d+|In \[\d+\]:\d+)/)
            .map((part, i) => (i % 2 === 0 ? part
                               : part[0] === "`" ? page.make("code", null, page.breakableCode(part.slice(1, -1))) : page.siteButton(part, part)));
    };
    /* One of several: [[value, words, title?]…]; the state's `name` is set to the value. */
    page.choice = function (node, name, options, chosen = page.state[name]) {
        page.fill(node,
            options.map(([value, words, title, disabled]) => page.make("button", {
                type: "button",
                "aria-pressed": String(chosen === value),
                title,
                disabled: Boolean(disabled),
                "data-value": String(value),
                onclick: () => page.set({[name]: value}),
            },
                            words)));
        node.hidden = options.length < 2;
    };
    /* Next to the pointer; not below `within`, so that it covers nothing that belongs to it. */
    page.tip = function (x, y, within, ...children) {
        const tip = page.byId("tip");
        page.fill(tip, ...children);
        tip.hidden = false;
        const width = tip.offsetWidth, height = tip.offsetHeight, room = 14;
        const view = document.documentElement; /* without the scroll bars */
        const left = x + room + width > view.clientWidth ? x - room - width : x + room;
        const below = y + room + height > view.clientHeight ? y - room - height : y + room,
              top = within ? Math.min(below, within.getBoundingClientRect().bottom - height) : below;
        tip.style.transform = `translate(${Math.max(4, left)}px, ${Math.max(4, top)}px)`;
    };
    page.tipOff = () => { page.byId("tip").hidden = true; };
})(gpuspyPage);
