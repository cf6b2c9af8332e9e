// The page: what is asked when something changes, and what is said about it.

import { Controls } from "./controls.js";
import { averaged, base, drawCurves, drawKernel, drawWeights, mark, picture, short, spoken } from "./plots.js";
import { address, ask, lines, Trouble } from "./server.js";

const $ = (id) => document.getElementById(id);
const QUIET = 350; // milliseconds without a change before curves are refined
const SLOW = 1500;
const BINARY = ["logistic", "hinge", "smooth_hinge", "exponential"];
const SIGNS = ["sign", "logit", "random_signs", "classes"];
const DRAWING = ["curves", "kernel", "time_axis", "value_axis"];
const RUNS_ONLY = ["dim", "trials", "batch"];

let controls, theory, stage, kernels, runs;
let asking = false, again = false, quiet = 0;
let finer = new AbortController();
let running = null;

start();

async function start() {
  try {
    const { groups, version } = await ask("fields");
    controls = new Controls(groups, $("controls"), { kernel: $("kernel-control") }, changed);
    document.title = `sgdlimit explorer ${version}`;
  } catch (error) {
    return trouble(error);
  }
  window.addEventListener("hashchange", () => location.hash.slice(1) !== controls.query() && open());
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  wire();
  open();
}

/** Take over what the address says. */
function open() {
  const unknown = controls.read(location.hash.slice(1));
  drop();
  formula();
  if (unknown.length) trouble(new Trouble("invalid", `${unknown[0][0]}: got ${unknown[0][1]}; the address holds a field that there is not`));
  else preview();
}

function changed(name) {
  reconcile(name);
  history.replaceState(null, "", `#${controls.query()}`);
  formula();
  links();
  if (DRAWING.includes(name)) return draw();
  if (!["tol"].includes(name)) stopRuns();
  if (RUNS_ONLY.includes(name)) return draw();
  preview();
}

/** A choice that makes another one impossible changes that one too. */
function reconcile(name) {
  const s = controls.state;
  if (name === "loss" && BINARY.includes(s.loss) && !SIGNS.includes(s.labels)) controls.set("labels", "sign");
  if (name === "loss" && s.loss === "two_layer") {
    if (s.data !== "mixture") controls.set("labels", "two_layer");
    if (s.init === "0") controls.set("init", "0.5");
  }
  if (name === "readout") {
    const others = s.curves.split(",").filter((curve) => curve !== "readout");
    controls.set("curves", [...(others.length ? others : ["train_error"]), ...(s.readout === "trained" ? ["readout"] : [])].join(","));
  }
  if (name === "labels" && BINARY.includes(s.loss) && !SIGNS.includes(s.labels)) controls.set("loss", "square");
  if (name === "labels" && (s.labels === "classes") !== (s.data === "mixture")) controls.set("data", s.labels === "classes" ? "mixture" : "iid");
  if (name === "data" && (s.labels === "classes") !== (s.data === "mixture")) controls.set("labels", s.data === "mixture" ? "classes" : BINARY.includes(s.loss) ? "sign" : "linear");
}

function formula() {
  const s = controls.state;
  const beside = ["readout", "momentum", "clip", "average"].filter((name) => controls.chosen(name));
  const parts = [["L", controls.words("loss")], ["y", controls.words("labels")], ["H", controls.words("penalty")], ["x", controls.words("data")], ...beside.map((name) => [controls.fields.get(name).words, controls.words(name)]), [controls.fields.get("algorithm").options[s.algorithm], controls.words("algorithm")]];
  $("formula").replaceChildren(...parts.flatMap(([name, words], i) => {
    const bold = document.createElement("b");
    bold.textContent = name;
    return [i ? "  ·  " : "min over θ of (1/n) Σ L + H/d:  ", bold, i === parts.length - 1 ? `: ${words}` : ` = ${words}`];
  }));
}

function drop() {
  finer.abort();
  clearTimeout(quiet);
  stopRuns();
}

/** Rough curves for what is chosen now. One question at a time: the next is asked for the latest state. */
async function preview() {
  finer.abort();
  clearTimeout(quiet);
  if (asking) return void (again = true);
  asking = true;
  const slow = setTimeout(() => say("working", "computing; a new kind of problem is compiled first, which takes some seconds"), SLOW);
  if (!theory) say("working", "computing the first curve");
  try {
    do {
      again = false;
      const found = await ask("curves", controls.query());
      clearTimeout(slow);
      calm();
      [theory, stage] = [found, "preview"];
      draw();
      tell();
    } while (again);
    quiet = setTimeout(refine, QUIET);
  } catch (error) {
    if (again && error.word !== "gone") setTimeout(preview, 0);
    else trouble(error);
  } finally {
    clearTimeout(slow);
    asking = false;
  }
}

/** Kernels, then curves as well known as was asked for. */
async function refine() {
  finer.abort();
  finer = new AbortController();
  const { signal } = finer;
  const query = controls.query();
  $("kernel-plot").classList.add("old");
  $("weights-plot").classList.add("old");
  try {
    const better = ask("refined", query, signal);
    better.catch(() => {}); // it is awaited below
    kernels = await ask("kernels", query, signal);
    drawBeside();
    if (stage === "preview") say("working", `preview of ${theory.options.samples} samples; refining to ${percent()}`);
    const found = await better;
    [theory, stage] = [found, "refined"];
    calm();
    links();
    draw();
    tell();
  } catch (error) {
    if (error.name !== "AbortError") trouble(error, theory ? "The curves shown are the preview. " : "");
  }
}

async function startRuns() {
  if (running) return stopRuns(true);
  running = new AbortController();
  runs = { trials: new Map(), weights: [], done: false };
  const { signal } = running;
  const mine = runs;
  $("run").textContent = "Stop";
  $("runs-words").textContent = "Starting the runs …";
  calm();
  try {
    for await (const told of lines("runs", controls.query(), signal)) {
      for (const record of told.records ?? []) add(mine, record);
      if (told.status) Object.assign(mine, { weights: told.weights, done: true, status: told.status, message: told.message });
      draw();
      if (mine.done) drawBeside();
      runsWords();
    }
  } catch (error) {
    if (error.name !== "AbortError") trouble(error, "No runs. ");
  } finally {
    if (runs === mine) running = null;
    $("run").textContent = running ? "Stop" : "Simulate";
    links();
  }
}

function stopRuns(keep = false) {
  running?.abort();
  running = null;
  $("run").textContent = "Simulate";
  if (keep && runs) return runsWords();
  runs = null;
  $("runs-words").textContent = "Simulate to set real runs beside it.";
}

function add(into, { trial, time, values }) {
  if (!into.trials.has(trial)) into.trials.set(trial, { time: [], values: {} });
  const row = into.trials.get(trial);
  row.time.push(time);
  for (const [name, value] of Object.entries(values)) (row.values[name] ??= []).push(value);
}

function runsWords() {
  const s = controls.state;
  const count = `${runs.trials.size} of ${s.trials} runs at d = ${s.dim}`;
  const ended = runs.done ? (runs.status === "complete" ? "" : ` They ended as ${runs.status}: ${runs.message}`) : running ? " Running …" : " Stopped.";
  $("runs-words").textContent = `Circles: mean of ${count}, bars of one standard deviation.${ended}`;
}

function draw() {
  if (!controls) return;
  const s = controls.state;
  const axes = { time: s.time_axis, value: s.value_axis };
  drawCurves($("curves-plot"), theory, stage, runs, s.curves.split(","), axes, Number(s.t_max));
  drawBeside();
  values();
}

function drawBeside() {
  const { kernel } = controls.state;
  drawKernel($("kernel-plot"), kernels, kernel);
  drawWeights($("weights-plot"), kernels, runs);
  $("kernel-plot").classList.remove("old");
  $("weights-plot").classList.remove("old");
  $("kernel-plot").setAttribute("aria-label", `Heat map of the ${controls.fields.get("kernel").options[kernel]}, ${controls.words("kernel")}`);
}

/** The last values, in a table and in the words of the picture. */
function values() {
  const chosen = controls.state.curves.split(",");
  const names = Object.keys(theory?.curves ?? {}).filter((name) => chosen.includes(base(name)));
  const said = [];
  $("values").replaceChildren(...names.map((name) => {
    const { value, error } = theory.curves[name];
    const [v, e] = [value.at(-1), error.at(-1)];
    const last = runs?.trials.size ? averaged(runs, name).at(-1) : undefined;
    const cells = [spoken(name), withError(v, 2 * (e ?? 0)), last ? withError(last.mean, last.deviation) : "–"];
    said.push(`${cells[0]} from ${short(value[0] ?? 0)} to ${cells[1]}`);
    const row = document.createElement("tr");
    row.className = `mark-${mark(name)}`;
    cells.forEach((text, i) => {
      const cell = document.createElement(i ? "td" : "th");
      if (!i) cell.scope = "row";
      cell.textContent = text;
      row.append(cell);
    });
    return row;
  }));
  if (theory) {
    $("values-caption").textContent = `At t = ${short(theory.time.at(-1) ?? 0)}: theory ± two standard errors, runs ± one standard deviation`;
    $("curves-plot").setAttribute("aria-label", `Learning curves, ${stage}: ${said.join("; ")}`);
  }
}

function withError(value, error) {
  if (value === null || value === undefined) return "–";
  if (Math.abs(value) >= 1e5) return `${value.toExponential(2)} ± ${error.toExponential(0)}`;
  const digits = error > 0 ? Math.min(6, Math.max(0, 1 - Math.floor(Math.log10(error)))) : 4;
  return error > 0 ? `${value.toFixed(digits)} ± ${error.toFixed(digits)}` : value.toPrecision(4);
}

function percent() {
  return controls.fields.get("tol").options[controls.state.tol];
}

/** What the curves on the page are. */
function tell() {
  const { status, message, options, checks, seconds } = theory;
  const took = `${options.samples.toLocaleString("en")} samples, ${options.steps} steps, ${seconds.toFixed(2)} s`;
  if (status === "diverged") say("bad", "diverged");
  else if (status === "unreliable") say("bad", "unreliable");
  else if (stage === "preview") say("rough", `preview of ${options.samples} samples`);
  else if (status === "budget" || status === "tolerance missed") say("rough", status === "budget" ? "out of time: the best so far" : "tolerance missed");
  else say("good", `refined to ${percent()}`);
  $("fine-print").textContent = `${stage === "refined" ? "Refined curves" : "Preview"}: ${took}.`;
  $("notice").textContent = message || checks.slice(0, 3).join("; ");
  $("notice").hidden = status === "complete" || (stage === "preview" && ["budget", "tolerance missed"].includes(status));
}

function say(state, words) {
  $("state").dataset.state = state;
  if ($("state-words").textContent !== words) $("state-words").textContent = words;
}

const TROUBLE = { invalid: "not a valid value", refused: "refused", full: "busy", time: "out of time", gone: "no server", failed: "failed" };

function trouble(error, before = "") {
  if (!(error instanceof Trouble)) throw error;
  say("bad", TROUBLE[error.word] ?? error.word);
  $("trouble-words").textContent = before + error.message;
  $("trouble").hidden = false;
  $("curves-plot").classList.toggle("old", !before); // what is drawn is not what is asked for
  controls?.blame(["invalid", "refused"].includes(error.word) ? error.message : "");
}

function calm() {
  $("trouble").hidden = true;
  $("curves-plot").classList.remove("old");
  controls.blame("");
}

/** Files are there once they have been computed. */
function links() {
  const query = controls.query();
  for (const id of ["theory-nc", "theory-csv", "runs-nc", "runs-csv"]) {
    const ready = id.startsWith("theory") ? stage === "refined" : runs?.done;
    if (ready) $(id).href = address(id.replace("-", "."), query);
    else $(id).removeAttribute("href");
    $(id).setAttribute("aria-disabled", String(!ready));
  }
}

async function show(title, what) {
  let text = `${location.href.split("#")[0]}#${controls.query()}`;
  try {
    if (what) text = (await ask("texts", controls.query()))[what];
  } catch (error) {
    return trouble(error);
  }
  $("text-title").textContent = title;
  $("text").value = text;
  $("text").rows = Math.min(24, text.split("\n").length + 1);
  $("copied").textContent = "";
  $("text-dialog").showModal();
  $("copy").focus();
}

async function copy() {
  try {
    await navigator.clipboard.writeText($("text").value);
  } catch {
    $("text").select(); // where the browser does not allow it, the keyboard does
    document.execCommand("copy");
  }
  $("copied").textContent = "Copied.";
}

async function save(format) {
  const link = document.createElement("a");
  link.href = await picture($("curves-plot"), format);
  link.download = `curves.${format}`;
  link.click();
}

function wire() {
  $("controls").addEventListener("submit", (event) => event.preventDefault());
  $("run").addEventListener("click", startRuns);
  $("python").addEventListener("click", () => show("Python that computes this view", "python"));
  $("toml").addEventListener("click", () => show("TOML for sgdlimit solve and sgdlimit simulate", "toml"));
  $("link").addEventListener("click", () => show("Address of this view, while this server runs", ""));
  $("copy").addEventListener("click", copy);
  $("close").addEventListener("click", () => $("text-dialog").close());
  $("retry").addEventListener("click", () => (controls ? open() : location.reload()));
  for (const format of ["png", "svg"]) $(format).addEventListener("click", () => save(format));
  const menu = $("downloads");
  document.addEventListener("click", (event) => event.target.closest("#downloads summary") || menu.removeAttribute("open"));
  menu.addEventListener("keydown", (event) => {
    if (event.key === "Escape") [menu.removeAttribute("open"), menu.querySelector("summary").focus()];
  });
}
