// The form, drawn from the server's table of fields. State is text by name, as in the address of the page.

const STEPS = 1000; // of a logarithmic slider

export class Controls {
  /** groups: the server's table; place: the form; elsewhere: fields drawn at other places, by name. */
  constructor(groups, place, elsewhere, changed) {
    this.fields = new Map(groups.flatMap((g) => g.fields.map((f) => [f.name, f])));
    this.state = Object.fromEntries([...this.fields.values()].map((f) => [f.name, f.default]));
    this.shown = new Map();
    this.changed = changed;
    for (const group of groups) {
      const box = document.createElement("fieldset");
      box.append(element("legend", group.group));
      for (const field of group.fields) {
        const row = this.#row(field);
        this.shown.set(field.name, row);
        (elsewhere[field.name] ?? box).append(row.box);
      }
      if (box.children.length > 1) place.append(box);
    }
    this.#show();
  }

  /** Whether a field has a meaning, given the others. */
  matters(name) {
    return Object.entries(this.fields.get(name).when).every(([other, allowed]) => allowed.includes(this.state[other]));
  }

  /** Whether a field has a meaning and is not at its default. */
  chosen(name) {
    return this.state[name] !== this.fields.get(name).default && this.matters(name);
  }

  /** The state as the part of an address behind #. */
  query() {
    const said = [...this.fields.values()].filter((f) => this.chosen(f.name));
    return new URLSearchParams(said.map((f) => [f.name, this.state[f.name]])).toString();
  }

  /** Take over the state of an address; names that are not known stay in `unknown` for the server to refuse. */
  read(query) {
    for (const f of this.fields.values()) this.state[f.name] = f.default;
    const unknown = [];
    for (const [name, value] of new URLSearchParams(query)) {
      if (this.fields.has(name)) this.state[name] = value;
      else unknown.push([name, value]);
    }
    this.#show();
    return unknown;
  }

  set(name, value) {
    this.state[name] = value;
    this.#show();
  }

  words(name) {
    const field = this.fields.get(name);
    return field.formulas?.[this.state[name]] ?? field.options?.[this.state[name]] ?? this.state[name];
  }

  /** Mark the field that an error message names; nothing for none. */
  blame(message) {
    const name = message ? message.split(":")[0].split(".").at(-1) : ""; // Step.momentum is the field momentum
    for (const [other, row] of this.shown) {
      const wrong = other === name;
      row.box.classList.toggle("wrong", wrong);
      row.why.textContent = wrong ? message.split("; ").slice(1).join("; ") : "";
      row.why.hidden = !wrong;
      for (const control of row.box.querySelectorAll("input, select")) control.setAttribute("aria-invalid", String(wrong));
    }
  }

  #show() {
    for (const [name, row] of this.shown) {
      row.box.hidden = !this.matters(name);
      row.show(this.state[name]);
    }
  }

  #take(name, value) {
    this.state[name] = value;
    this.changed(name);
    this.#show();
  }

  #row(field) {
    const box = element("div");
    box.className = `field ${field.kind}`;
    const why = element("p");
    why.className = "why";
    why.id = `why-${field.name}`;
    why.hidden = true;
    const row = this[`_${field.kind}`](field, box, (value) => this.#take(field.name, value));
    box.append(why);
    return { box, why, ...row };
  }

  _number(field, box, take) {
    const [low, high, step] = field.slider;
    const toSlider = (v) => (field.logarithmic ? (STEPS * Math.log(v / low)) / Math.log(high / low) : v);
    const fromSlider = (s) => (field.logarithmic ? low * (high / low) ** (s / STEPS) : s);
    const digits = Math.max(0, Math.ceil(-Math.log10(step)));
    const [text, slider] = [element("input"), element("input")];
    Object.assign(text, { type: "number", id: `field-${field.name}`, min: field.least, max: field.most, step: "any" });
    Object.assign(slider, { type: "range", min: toSlider(low), max: toSlider(high), step: field.logarithmic ? 1 : step });
    slider.id = `slide-${field.name}`;
    slider.setAttribute("aria-label", `${field.words}, slider`);
    text.setAttribute("aria-describedby", `why-${field.name}`);
    text.addEventListener("input", () => text.value !== "" && take(text.value));
    slider.addEventListener("input", () => take(String(Number(fromSlider(Number(slider.value)).toFixed(digits)))));
    box.append(labelled(field, text.id), text, slider);
    return {
      show: (value) => {
        if (document.activeElement !== text) text.value = value;
        const number = Number(value);
        if (document.activeElement !== slider && (number > 0 || !field.logarithmic)) slider.value = toSlider(number);
        slider.setAttribute("aria-valuetext", `${field.symbol} = ${value}`);
      },
    };
  }

  _whole(field, box, take) {
    const text = element("input");
    Object.assign(text, { type: "number", id: `field-${field.name}`, min: field.least, max: field.most, step: 1 });
    text.setAttribute("aria-describedby", `why-${field.name}`);
    text.addEventListener("input", () => text.value !== "" && take(text.value));
    box.append(labelled(field, text.id), text);
    return { show: (value) => document.activeElement === text || (text.value = value) };
  }

  _choice(field, box, take) {
    const select = element("select");
    select.id = `field-${field.name}`;
    select.setAttribute("aria-describedby", `why-${field.name}`);
    for (const [value, words] of Object.entries(field.options)) select.append(new Option(words, value));
    select.addEventListener("change", () => take(select.value));
    box.append(labelled(field, select.id), select);
    return {
      show: (value) => {
        select.value = value;
        select.title = field.formulas?.[value] ?? "";
      },
    };
  }

  _several(field, box, take) {
    box.setAttribute("role", "group");
    box.setAttribute("aria-label", field.words);
    const boxes = Object.entries(field.options).map(([value, words]) => {
      const input = element("input");
      Object.assign(input, { type: "checkbox", value, id: `field-${field.name}-${value}` });
      const label = element("label");
      label.className = "check";
      label.append(input, words);
      input.addEventListener("change", () => {
        const chosen = boxes.filter((b) => b.checked).map((b) => b.value);
        if (chosen.length) take(chosen.join(","));
        else input.checked = true; // at least one
      });
      box.append(label);
      return input;
    });
    return { show: (value) => boxes.forEach((b) => (b.checked = value.split(",").includes(b.value))) };
  }
}

function element(kind, text = "") {
  const made = document.createElement(kind);
  made.textContent = text;
  return made;
}

function labelled(field, id) {
  const label = element("label");
  label.htmlFor = id;
  if (field.symbol && field.kind !== "choice") label.append(element("i", field.symbol), " ");
  label.append(field.words);
  return label;
}
