/* A device's memory at its peak, as one bar: as in the terminal report (view_text_memory.c). For a device that ran out
 * of memory the waterfall shows more. */
"use strict";
(function (page) {
    const make = page.make;

    /* What this process allocated: PyTorch's part as far as it reported its totals. */
    function own(m) {
        if (m.tensor_bytes !== null && (m.cached_bytes === null || m.direct_bytes === null)) {
            return [
                ["in PyTorch tensors", Math.min(m.live_bytes, m.tensor_bytes), "accent"],
                [
                    "in other CUDA allocations: PyTorch’s cache, libraries", Math.max(0, m.live_bytes - m.tensor_bytes),
                    "soft"
                ]
            ];
        }
        return [
            ["in PyTorch tensors", m.tensor_bytes, "accent"],
            ["cached by PyTorch: reserved, in no tensor", m.cached_bytes, "pale"],
            [
                m.tensor_bytes === null ? "in CUDA allocations"
                                        : "in other CUDA allocations: NCCL, cuBLAS, the program’s own",
                m.direct_bytes, "soft"
            ]
        ];
    }
    /* What is in use and in no recorded allocation, divided if NVML reported its owners. */
    function outside(m) {
        if (m.outside_bytes === null)
            return [[
                "free, or outside: CUDA context, libraries, other processes",
                m.total_bytes - m.live_bytes - (m.graph_bytes || 0), null
            ]];
        const out = [], about = m.about ? "about" : "";
        if (m.context_bytes === null || m.other_bytes === null) {
            out.push([
                "outside" + (about && ", about") + ": CUDA context, libraries, other processes", m.outside_bytes,
                "faint"
            ]);
        } else {
            const other = Math.min(m.other_bytes, m.outside_bytes),
                  context = Math.min(m.context_bytes, m.outside_bytes - other);
            out.push(["this process’s CUDA context and code (NVML)", context, "faint"],
                ["other processes (NVML)", other, "warn"],
                ["in use, owner unknown", m.outside_bytes - other - context, "line"]);
        }
        return out.concat([["free" + (about && ", about"), m.free_bytes, null]]);
    }
    page.deviceParts = function (m) {
        return own(m)
            .concat([["held for CUDA graphs", m.graph_bytes, "faint"]], outside(m))
            .filter(part => part[1] > 0);
    };

    /* Not the categories' colours: these are other things. */
    const colourOf = name => (name === null ? "transparent"
            : name === "pale"               ? d3.interpolateRgb(page.ink.accent, page.ink.card)(0.55)
                                            : page.ink[name]);

    function draw() {
        const node = page.byId("device"), place = page.places[page.state.place];
        const m = place && place.device >= 0 && page.report.memory.find(x => page.isAt(x, place));
        if (!m || !(m.live_bytes > 0) || !(m.total_bytes > 0) || page.oomAt(place)) return page.fill(node);
        const parts = page.deviceParts(m),
              bar = page.meter(parts.map(([, bytes, colour]) => [bytes, colourOf(colour)]), m.total_bytes);
        return page.fill(node,
            make("h3", null,
                "Of the GPU’s " + page.bytes(m.total_bytes) + " at the peak of CUDA allocations, " +
                    page.seconds(m.time_s)),
            bar,
            make("div", {class: "legend"},
                parts.map(
                    ([words, bytes, colour]) => make("span", {class: "device-part", "data-bytes": String(bytes)},
                        page.swatch(colour ? colourOf(colour) : page.ink.sunk), " ", words, " ",
                        make("span", {class: "soft"}, page.bytes(bytes) + ", " + page.share(bytes / m.total_bytes))))));
    }
    page.view(["place", "ink"], draw);
})(gpuspyPage);
