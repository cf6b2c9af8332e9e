// Pictures. They compute nothing but means and standard deviations of runs.

const NAMES = ["train_error", "test_error", "train_loss", "test_loss", "overlap", "norm", "readout"];
const DASHES = ["solid", "dash", "dot", "dashdot", "longdash", "longdashdot"];
const CONFIG = { displayModeBar: false, responsive: true, doubleClick: "reset" };

export function mark(name) {
  return Math.max(0, NAMES.indexOf(base(name)));
}

/** "norm" of "norm 2,1", and of "ema.norm 2,1", that of an average of the weights. */
export function base(name) {
  return name.split(" ")[0].split(".").at(-1);
}

function average(name) {
  return name.includes(".") ? name.split(".")[0].toUpperCase() : "";
}

export function spoken(name) {
  const entry = name.split(" ")[1];
  return base(name).replace("_", " ") + (entry ? ` ${entry}` : "") + (average(name) ? ` of the ${average(name)}` : "");
}

function colours() {
  const style = getComputedStyle(document.documentElement);
  return (name) => style.getPropertyValue(`--${name}`).trim();
}

function faded(colour, alpha) {
  const [r, g, b] = [1, 3, 5].map((i) => parseInt(colour.slice(i, i + 2), 16));
  return `rgba(${r},${g},${b},${alpha})`;
}

function layout(further) {
  const of = colours();
  const axis = { gridcolor: of("grid"), zerolinecolor: of("line"), linecolor: of("line"), ticks: "outside", tickcolor: of("line") };
  const { xaxis, yaxis, ...rest } = further;
  return {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: "system-ui, sans-serif", size: 13, color: of("ink") },
    margin: { l: 56, r: 12, t: 10, b: 44 },
    dragmode: matchMedia("(pointer: coarse)").matches ? false : "zoom",
    hoverlabel: { bgcolor: of("card"), bordercolor: of("line"), font: { color: of("ink") } },
    xaxis: titled(axis, xaxis), yaxis: titled(axis, yaxis), ...rest,
  };
}

function titled(axis, { text, ...further }) {
  return { ...axis, ...further, title: { text: text ?? "", standoff: 8, font: { size: 13 } } };
}

/** Mean and standard deviation over the trials that have reached a time. */
export function averaged(runs, name) {
  const trials = [...runs.trials.values()].filter((t) => t.values[name]);
  const longest = trials.reduce((a, b) => (b.time.length > a.length ? b.time : a), []);
  return longest.map((time, i) => {
    const found = trials.map((t) => t.values[name][i]).filter((v) => v !== undefined && v !== null);
    const mean = found.reduce((a, b) => a + b, 0) / found.length;
    const square = found.reduce((a, b) => a + (b - mean) ** 2, 0);
    return { time, mean, count: found.length, deviation: found.length > 1 ? Math.sqrt(square / (found.length - 1)) : 0 };
  });
}

export function drawCurves(place, theory, stage, runs, chosen, axes, last) {
  const of = colours();
  const log = axes.value === "log";
  const traces = [];
  const names = Object.keys(theory?.curves ?? {}).filter((name) => chosen.includes(base(name)));
  const entries = {};
  const diverged = theory?.status === "diverged";
  // what grows without bound would hide all that comes before
  const most = diverged && !log ? 10 * Math.max(...names.map((name) => Math.abs(theory.curves[name].value[0] ?? 0)), 1e-3) : Infinity;
  let clipped = false;
  names.forEach((name) => {
    const colour = of(`c${mark(name)}`);
    const dash = DASHES[(entries[base(name)] = (entries[base(name)] ?? -1) + 1) % DASHES.length];
    const beyond = theory.curves[name].value.findIndex((v) => Math.abs(v) > most);
    const kept = beyond < 0 ? theory.time.length : beyond + 1;
    clipped ||= beyond >= 0;
    const [x, value, error] = [theory.time, theory.curves[name].value, theory.curves[name].error].map((part) => part.slice(0, kept));
    const doubtful = theory.curves[name].doubtful && !diverged;
    const least = log ? Math.min(...value.filter((v) => v > 0)) / 10 : -Infinity;
    const edge = (sign) => value.map((v, i) => Math.max(least, v + sign * 2 * (error[i] ?? 0)));
    traces.push({ x: [...x, ...x.slice().reverse()], y: [...edge(1), ...edge(-1).reverse()], fill: "toself", fillcolor: faded(colour, doubtful ? 0.35 : 0.2), line: { width: 0 }, mode: "lines", hoverinfo: "skip", showlegend: false });
    traces.push({ x, y: value, name: `${spoken(name)}, ${diverged ? "diverged" : doubtful ? "unreliable" : stage}`, mode: "lines", line: { color: colour, width: average(name) ? 1.6 : 2.2, dash: doubtful ? "dot" : dash, simplify: false }, customdata: error.map((e) => 2 * e), hovertemplate: "%{y:.4g} ± %{customdata:.2g}" });
  });
  const running = [...(runs?.trials.values() ?? [])];
  Object.keys(running[0]?.values ?? {}).filter((name) => chosen.includes(base(name))).forEach((name) => {
    const colour = of(`c${mark(name)}`);
    running.forEach((trial) => traces.push({ x: trial.time, y: trial.values[name], mode: "lines", line: { color: faded(colour, 0.3), width: 1 }, hoverinfo: "skip", showlegend: false }));
    const rows = averaged(runs, name);
    traces.push({ x: rows.map((r) => r.time), y: rows.map((r) => r.mean), name: `${spoken(name)}, runs`, mode: "markers", marker: { color: colour, size: 6, symbol: average(name) ? "diamond-open" : "circle-open", line: { width: 1.6 } }, error_y: { type: "data", array: rows.map((r) => r.deviation), color: faded(colour, 0.65), thickness: 1.2, width: 0 }, customdata: rows.map((r) => r.deviation), hovertemplate: "%{y:.4g} (sd %{customdata:.2g})" });
  });
  const narrow = place.clientWidth < 560;
  const end = theory?.time.at(-1) ?? last;
  const shapes = diverged ? [{ type: "line", x0: end, x1: end, yref: "paper", y0: 0, y1: 1, line: { color: of("bad"), width: 1.5, dash: "dash" } }] : [];
  const annotations = diverged ? [{ x: axes.time === "log" ? Math.log10(end) : end, y: 1, yref: "paper", text: "diverges", showarrow: false, xanchor: "left", yanchor: "top", xshift: 5, font: { color: of("bad") } }] : [];
  const first = theory?.time.find((t) => t > 0) ?? 0.01;
  return Plotly.react(place, traces, layout({
    xaxis: { text: "time  t = ηk/d", type: axes.time, range: axes.time === "log" ? [Math.log10(first), Math.log10(last)] : [0, last] },
    yaxis: { type: axes.value, exponentformat: "power", ...(clipped ? { range: [0, most] } : { rangemode: "tozero" }) },
    hovermode: "x unified", shapes, annotations,
    legend: narrow ? { orientation: "h", y: -0.25, font: { size: 11 } } : { orientation: "h", x: 0, y: 1.02, yanchor: "bottom" },
    margin: narrow ? { l: 44, r: 8, t: 8, b: 72 } : { l: 56, r: 12, t: 30, b: 44 },
  }), CONFIG);
}

export function drawKernel(place, found, name) {
  const of = colours();
  const z = found?.kernels?.[name] ?? [];
  const all = z.flat().filter((v) => v !== null);
  const [low, high] = [Math.min(0, ...all), Math.max(0, ...all)];
  const mixed = low < -0.02 * high && high > -0.02 * low;
  const size = Math.max(-low, high);
  const scale = mixed ? { colorscale: "RdBu", zmin: -size, zmax: size } : { colorscale: "Viridis", reversescale: high <= 0.02 * -low };
  const traces = all.length ? [{ type: "heatmap", x: found.time, y: found.time, z, ...scale, hovertemplate: "t = %{y:.3g}, t′ = %{x:.3g}<br>%{z:.4g}<extra></extra>", colorbar: { thickness: 12, outlinewidth: 0, tickfont: { size: 11 } } }] : [];
  return Plotly.react(place, traces, layout({
    xaxis: { text: "earlier time  t′" }, yaxis: { text: "time  t" },
    annotations: all.length ? [] : empty(of, found ? "not known with momentum" : undefined), margin: { l: 48, r: 8, t: 8, b: 42 },
  }), CONFIG);
}

export function drawWeights(place, found, runs) {
  const of = colours();
  const traces = [];
  if (runs?.weights?.length) {
    const { edges, density, time } = runs.weights[0];
    const middle = density.map((_, i) => (edges[i] + edges[i + 1]) / 2);
    traces.push({ type: "bar", x: middle, y: density, width: edges[1] - edges[0], marker: { color: faded(of("c1"), 0.35), line: { width: 0 } }, name: `runs, t = ${short(time)}`, hoverinfo: "skip" });
  }
  const laws = found?.weights ?? [];
  laws.forEach(({ edges, density, time }, i) => {
    const strength = (i + 1) / laws.length;
    traces.push({ x: density.map((_, j) => (edges[j] + edges[j + 1]) / 2), y: density, mode: "lines", line: { color: faded(of("c0"), 0.25 + 0.75 * strength), width: 1 + 1.4 * strength, shape: "hvh" }, name: `t = ${short(time)}`, hovertemplate: "θ = %{x:.3g}: %{y:.3g}" });
  });
  return Plotly.react(place, traces, layout({
    xaxis: { text: "weight  θ" }, yaxis: { text: "density", rangemode: "tozero" },
    legend: { x: 1, xanchor: "right", y: 1, bgcolor: "rgba(0,0,0,0)", font: { size: 11 } },
    annotations: traces.length ? [] : empty(of), margin: { l: 48, r: 8, t: 8, b: 42 }, barmode: "overlay",
  }), CONFIG);
}

function empty(of, text = "nothing yet") {
  return [{ x: 0.5, y: 0.5, xref: "paper", yref: "paper", text, showarrow: false, font: { color: of("soft") } }];
}

export function short(number) {
  return Number(number.toPrecision(3)).toString();
}

/** The figure as a file; on paper of the page's colour. */
export async function picture(place, format) {
  const of = colours();
  const figure = { data: place.data, layout: { ...place.layout, paper_bgcolor: of("card"), width: undefined, height: undefined } };
  return Plotly.toImage(figure, { format, width: 960, height: 600, scale: 2 });
}
