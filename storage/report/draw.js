"use strict";
(() => {
  const charts = JSON.parse(document.getElementById("charts").textContent);
  const places = [...document.querySelectorAll("[data-chart]")];
  const themed = (layout) => {
    const style = getComputedStyle(document.documentElement);
    const ink = style.getPropertyValue("--soft").trim(), grid = style.getPropertyValue("--line").trim(), back = style.getPropertyValue("--back").trim();
    const out = { ...layout, font: { ...layout.font, color: ink }, hoverlabel: { ...layout.hoverlabel, bgcolor: back, bordercolor: grid } };
    for (const axis of ["xaxis", "yaxis"]) {
      if (out[axis]) out[axis] = { ...out[axis], gridcolor: grid, zerolinecolor: grid, linecolor: grid };
    }
    return out;
  };
  const draw = () => {
    for (const place of places) {
      const chart = charts[Number(place.dataset.chart)];
      Plotly.react(place, chart.data, themed(chart.layout), { displayModeBar: false, responsive: true });
    }
  };
  draw();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
})();
