// Draws the charts of a page with Plotly, in the page's colours; again when these turn dark or light.
"use strict";
(function () {
  // Colours in a figure are names of the style's variables, such as "--compute".
  function coloured(value) {
    if (typeof value === "string") return value.startsWith("--") ? colourOf(value) : value;
    if (Array.isArray(value)) return value.map(coloured);
    if (value && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([name, one]) => [name, coloured(one)]));
    }
    return value;
  }

  function drawAll() {
    const [ink, soft, rule] = ["--ink", "--soft", "--rule"].map(colourOf);
    for (const box of document.querySelectorAll(".chart-box")) {
      const figure = coloured(JSON.parse(box.querySelector("script").textContent));
      const axis = { gridcolor: rule, linecolor: rule, zerolinecolor: rule, tickcolor: rule, automargin: true };
      const given = figure.layout;
      const layout = {
        ...given,
        paper_bgcolor: "rgba(0,0,0,0)",
        plot_bgcolor: "rgba(0,0,0,0)",
        font: { family: getComputedStyle(document.body).fontFamily, size: 12.5, color: soft },
        margin: { l: 60, r: 20, t: given.showlegend ? 34 : 14, b: given.xaxis.title ? 46 : 34 },
        hovermode: given.hovermode || "x unified",
        hoverlabel: { bgcolor: colourOf("--surface"), bordercolor: rule, font: { color: ink } },
        legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", font: { color: soft } },
        xaxis: { ...axis, showgrid: false, ...given.xaxis },
        yaxis: { ...axis, ...given.yaxis },
        dragmode: "zoom",
      };
      for (const trace of figure.data) if (trace.colorbar) trace.colorbar.outlinewidth = 0;
      Plotly.react(box.querySelector(".chart"), figure.data, layout, { displayModeBar: false, responsive: true });
    }
  }

  drawAll();
  addEventListener("scheme", drawAll);
})();
