/* What core_text.js needs of a page, and its theme. */
"use strict";
var gpuspyPage = (function () {
    const page = {state: {query: ""}};

    page.theme = function (theme) {
        const dark = theme ? theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
        document.documentElement.dataset.theme = dark ? "dark" : "light";
    };
    page.followTheme = function () {
        let theme = null;
        try { theme = localStorage.getItem("gpuspy-theme"); } catch (e) { /* as the system does */ }
        page.theme(theme);
        matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => page.theme(theme));
        document.getElementById("theme").addEventListener("click", () => {
            theme = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
            try { localStorage.setItem("gpuspy-theme", theme); } catch (e) { /* then it is not stored */ }
            page.theme(theme);
        });
        addEventListener("beforeprint", () => page.theme("light"));
        addEventListener("afterprint", () => page.theme(theme));
    };
    return page;
})();
