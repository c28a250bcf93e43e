"use strict";
// Draws the charts of a page and of each part that is fetched later, in the colours of the theme. The library, which is large, comes with the first chart, once the
// texts are there.
(() => {
  let library;
  const still = () => new Promise((done) => (window.requestIdleCallback ?? setTimeout)(done, { timeout: 1000 }));
  const plotly = () => library ??= still().then(() => new Promise((done, failed) => {
    const script = document.createElement("script");
    script.src = "/plotly.js";
    script.onload = () => done(window.Plotly);
    script.onerror = failed;
    document.head.append(script);
  }));
  const draw = async (root) => {
    const style = getComputedStyle(document.documentElement);
    const ink = style.getPropertyValue("--soft").trim(), line = style.getPropertyValue("--line").trim();
    for (const source of root.querySelectorAll("script.charts")) {
      const places = [...source.parentElement.querySelectorAll("[data-chart]")];
      if (!places.length) continue;
      const charts = JSON.parse(source.textContent), { react } = await plotly();
      for (const place of places) {
        const chart = charts[Number(place.dataset.chart)];
        const layout = { ...chart.layout, font: { ...chart.layout.font, color: ink } };
        for (const axis of ["xaxis", "yaxis"]) {
          if (layout[axis]) layout[axis] = { ...layout[axis], gridcolor: line, zerolinecolor: line };
        }
        react(place, chart.data, layout, { displayModeBar: false, responsive: true });
      }
    }
  };
  document.addEventListener("part", (event) => draw(event.detail));
  draw(document);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => draw(document));
})();
