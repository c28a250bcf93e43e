"use strict";
// Draws the charts of a page in the colours of its theme.
(() => {
  const charts = JSON.parse(document.getElementById("charts").textContent);
  const draw = () => {
    const style = getComputedStyle(document.documentElement);
    const ink = style.getPropertyValue("--soft").trim(), line = style.getPropertyValue("--line").trim();
    for (const place of document.querySelectorAll("[data-chart]")) {
      const chart = charts[Number(place.dataset.chart)];
      const layout = { ...chart.layout, font: { ...chart.layout.font, color: ink } };
      for (const axis of ["xaxis", "yaxis"]) {
        if (layout[axis]) layout[axis] = { ...layout[axis], gridcolor: line, zerolinecolor: line };
      }
      Plotly.react(place, chart.data, layout, { displayModeBar: false, responsive: true });
    }
  };
  draw();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
})();
