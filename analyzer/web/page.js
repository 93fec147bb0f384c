"use strict";
(function () {
  const m = gpuspyModel(JSON.parse(document.getElementById("gpuspy-data").textContent));
  const head = document.getElementById("head"), main = document.getElementById("main");
  head.textContent = m.report.run.command || m.source;
  for (const s of m.series) {
    const line = document.createElement("p");
    line.textContent = s.label + ": " + d3.max(s.high) + " bytes at most";
    main.appendChild(line);
  }
})();
