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
// On a narrow screen: smaller letters, fewer ticks, and names cut in the middle.
const phone = window.matchMedia("(max-width: 40rem)");
function short(name) { return name.length > 17 && !/[&<]/.test(name) ? name.slice(0, 5) + "…" + name.slice(-11) : name; }
function fit(narrow) {
  plots.forEach((plot, number) => {
    const { xaxis = {}, yaxis = {} } = plot.layout, change = { "font.size": narrow ? 11 : 13 };
    if (xaxis.type !== "category") change["xaxis.nticks"] = narrow ? 4 : xaxis.nticks || 0;
    if (!xaxis.tickvals) change["xaxis.tickangle"] = narrow ? 0 : "auto";
    if (yaxis.tickmode === "array" && yaxis.categoryarray) {
      change["yaxis.ticktext"] = yaxis.tickvals.map((name) => narrow ? short(name) : name);
    }
    if (plot.layout.coloraxis) change["coloraxis.colorbar.thickness"] = narrow ? 6 : 12;
    Plotly.relayout("plot-" + number, change);
    const named = plot.data.flatMap((trace, at) => trace.mode === "markers+text" ? [at] : []);
    if (named.length) Plotly.restyle("plot-" + number, { mode: narrow ? "markers" : "markers+text" }, named);
  });
}
plots.forEach((plot, number) => Plotly.newPlot("plot-" + number, plot.data, plot.layout, { responsive: true,
  displayModeBar: false }));
paint(dark.matches);
fit(phone.matches);
phone.addEventListener("change", () => fit(phone.matches));
dark.addEventListener("change", () => paint(dark.matches));
window.addEventListener("beforeprint", () => paint(false));
window.addEventListener("afterprint", () => paint(dark.matches));
