"""Every script of the gallery: it runs, draws a picture, and its theory agrees with its simulation."""

import ast
import importlib.util
import json
import time
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("*.py"))
DOCS = Path(__file__).parent.parent / "docs"
WITHIN = 4.0
"""Largest deviation of any point, as a normal deviate."""
FALSE_ALARM = 1e-3
"""Of the one test over all curves of a comparison."""


def test_gallery_is_complete_and_described():
    page = (Path(__file__).parent.parent / "docs" / "gallery.md").read_text()
    assert len(EXAMPLES) >= 12
    for path in EXAMPLES:
        assert f"examples/{path.name}" in page, path.name
        assert f"python examples/{path.name}" in path.read_text(), path.name


def module_of(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_script_has_a_small_picture():
    gallery = module_of(DOCS / "make_gallery.py")
    assert sorted(path.stem for path in gallery.PICTURES.glob("*.png")) == [path.stem for path in EXAMPLES]
    assert gallery.kept() == {path.stem: gallery.fingerprint(path) for path in EXAMPLES}, "run make gallery"
    for picture in gallery.PICTURES.glob("*.png"):
        assert picture.read_bytes().startswith(b"\x89PNG")
        assert 5_000 < picture.stat().st_size <= gallery.LARGEST


def test_pictures_are_made_once(tmp_path, monkeypatch, capsys):
    """Skipped while the script is the same, made again when it changes, kept small whatever it draws."""
    gallery = module_of(DOCS / "make_gallery.py")
    monkeypatch.setattr(gallery, "EXAMPLES", tmp_path)
    monkeypatch.setattr(gallery, "PICTURES", tmp_path / "gallery")
    noisy = (
        "import sys\nimport numpy as np\nfrom PIL import Image\n"
        "noise = np.random.default_rng(0).integers(0, 256, (900, 1500, 4), dtype=np.uint8)\n"
        "Image.fromarray(noise).resize((1500, 900)).save(sys.argv[1])\n"
    )
    (tmp_path / "plain.py").write_text(
        '"""A docstring."""\n'
        "import sys\nfrom PIL import Image\nImage.new('RGB', (2000, 1000), 'white').save(sys.argv[1])\n"
    )
    gallery.main([])
    text = (tmp_path / "plain.py").read_text()
    (tmp_path / "plain.py").write_text(text.replace("A docstring", "Another"))
    gallery.main([])
    assert capsys.readouterr().out.count("plain: ") == 1
    with (tmp_path / "plain.py").open("a") as script:
        script.write("# another\n")
    gallery.main(["plain"])
    assert capsys.readouterr().out.count("plain: ") == 1
    with pytest.raises(SystemExit, match="no such example: other"):
        gallery.main(["other"])
    (tmp_path / "noisy.py").write_text(noisy)
    with pytest.raises(SystemExit, match="draw less"):
        gallery.main(["noisy"])
    assert "noisy" not in gallery.kept()


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_notebooks_are_up_to_date(path):
    """`make notebooks` writes them; all code of the script is in them, in order, and nothing was run."""
    notebooks = module_of(DOCS / "make_notebooks.py")
    made = notebooks.notebook(path)
    assert (notebooks.NOTEBOOKS / f"{path.stem}.ipynb").read_text() == made, "run make notebooks"
    cells = json.loads(made)["cells"]
    assert cells[0]["cell_type"] == "markdown"
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in cells)
    code = "\n".join("".join(cell["source"]) for cell in cells[1:-1])
    script = ast.parse(path.read_text()).body[1:-1]
    assert [ast.dump(node) for node in ast.parse(code).body] == [ast.dump(node) for node in script]


def test_no_notebook_is_left_over():
    assert sorted(path.stem for path in (DOCS / "notebooks").glob("*.ipynb")) == [path.stem for path in EXAMPLES]


@pytest.mark.slow
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_script(path, tmp_path):
    begin = time.perf_counter()
    module = module_of(path)
    reports = module.main(tmp_path / "picture.png")
    print(f"{path.stem}: {time.perf_counter() - begin:.0f} s")
    assert (tmp_path / "picture.png").stat().st_size > 20_000
    assert reports
    if path.stem == "scaling_laws":  # exponents of exact curves: up to finite sizes
        for label, (exponent, published) in reports.items():
            assert exponent == pytest.approx(published, rel=0.01), label
        return
    for label, report in reports.items():
        print(f"{path.stem}, {label}: {report.sigma:.2f} sigmas at worst, p = {report.p_value:.3f}")
        if path.stem == "own_data":  # a model of the table: its own rows to four percent, those of one test set to ten
            assert report["train_loss"].relative < 0.04
            assert report["test_loss"].relative < 0.1
            continue
        assert report.agrees(WITHIN), f"{label}\n{report}"
        assert report.agrees(false_alarm=FALSE_ALARM), f"{label}\n{report}"
