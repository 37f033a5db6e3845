"use strict";
// The plots take the page's colours, again when those change, and light ones on paper.
const plots = JSON.parse(document.getElementById("plots").textContent);
const dark = window.matchMedia("(prefers-color-scheme: dark)");
function colours(night) {
  const ink = night ? "#e4e9ee" : "#1d2733", line = night ? "#37414b" : "#dde2e7";
  const change = { "font.color": ink, "hoverlabel.bgcolor": night ? "#2a323b" : "#ffffff", "hoverlabel.font.color": ink,
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", "legend.bgcolor": "rgba(0,0,0,0)" };
  for (const axis of ["xaxis", "yaxis", "xaxis2", "yaxis2"]) {
    change[axis + ".gridcolor"] = line; change[axis + ".linecolor"] = line; change[axis + ".zerolinecolor"] = line;
  }
  return change;
}
function paint(night) {
  plots.forEach((plot, number) => {
    const change = Object.fromEntries(Object.entries(colours(night)).filter(
      ([key]) => !/axis/.test(key) || plot.layout[key.split(".")[0]]));
    Plotly.relayout("plot-" + number, change);
  });
}
plots.forEach((plot, number) => Plotly.newPlot("plot-" + number, plot.data, plot.layout, { responsive: true,
  displayModeBar: false }));
paint(dark.matches);
dark.addEventListener("change", () => paint(dark.matches));
window.addEventListener("beforeprint", () => paint(false));
window.addEventListener("afterprint", () => paint(dark.matches));
