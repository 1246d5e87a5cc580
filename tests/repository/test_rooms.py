# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""The rooms of the house: which package may import which, and names of modules that files out there mention."""

import ast
import os
import pickle
import runpy
import subprocess
import sys
from dataclasses import asdict, fields
from pathlib import Path

import pytest
from conftest import script_environment

import modeling_lion
from configuration_lion.registry import FEATURE_MAPS, MIXERS


ROOT = Path(__file__).resolve().parents[2]
BELOW_ALL = {"configuration_lion", "tokenization_lion"}
BELOW_USES = {*BELOW_ALL, "modeling_lion"}
# What each package may import, and its folder.
ROOMS = {
    "configuration_lion": ("configuration_lion", set()),
    "tokenization_lion": ("tokenization", {"configuration_lion"}),
    "modeling_lion": ("modeling_lion", BELOW_ALL),
    "retrieval_lion": ("retrieval", BELOW_USES),
    "hub_upload_lion": ("hub_upload", BELOW_USES),
    "training_lion": ("training", {*BELOW_USES, "retrieval_lion", "hub_upload_lion"}),
    "deploy_lion": ("deploy", {*BELOW_USES, "retrieval_lion", "hub_upload_lion", "training_lion"}),
}
# Public names and names in saved files whose home is above.
UPWARD = {
    ("modeling_lion/__init__.py", "retrieval_lion"): "`modeling_lion.encode_passages`, imported when first asked for",
    ("hub_upload/exported_sentence.py", "deploy_lion"): "the name in modules.json of encoders that 0.2 exported",
}


def imported_rooms(path: Path) -> set[str]:
    """The packages of this repository that a file imports, also within functions and by `import_module`."""
    names = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names.append(node.module)
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "import_module":
            names += [x.value for x in node.args if isinstance(x, ast.Constant)]
    return {name.partition(".")[0] for name in names} & ROOMS.keys()


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_those_below_it(room):
    folder, below = ROOMS[room]
    files = {path.relative_to(ROOT).as_posix(): path for path in (ROOT / folder).rglob("*.py")}
    found = {(name, other) for name, path in files.items() for other in imported_rooms(path) - {room} - below}
    assert found == {edge for edge in UPWARD if edge[0] in files}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("configuration_lion LionConfig", "LionConfig"),
        ("in_transformers.in_place_classes LionBertConfig", "LionBertConfig"),
        ("in_transformers.in_place_classes empty_model", "linearized.classes.empty_model"),
        ("in_transformers.in_place_head InPlaceHead", "linearized.branch.LinearBranch"),
        ("in_transformers.in_place_head KeptAttention", "linearized.branch.KeptAttention"),
        ("mixers.decay DecayGate", "mixers.selective.DecayGate"),
        ("mixers.decay SelectiveMixer", "mixers.selective.SelectiveMixer"),
    ],
)
def test_pickles_of_the_version_before_find_their_names(old, new):
    """As protocol 0 writes a name."""
    module, name = old.split()
    expected = modeling_lion
    for part in new.split("."):
        expected = getattr(expected, part)
    assert pickle.loads(f"cmodeling_lion.{module}\n{name}\n.".encode()) is expected


@pytest.mark.slow
def test_a_configuration_needs_no_model(tmp_path):
    """It knows the package's mixers without their classes, and is saved as it is: code comes with the models."""
    code = """
import json, pathlib, sys
from configuration_lion import LionConfig, lion_preset
from configuration_lion.registry import FEATURE_MAPS, MIXERS
for mixer in MIXERS:
    config = LionConfig(mixer_type=mixer, feature_map="silu_norm")
lion_preset("lion-text-small", num_labels=3).save_pretrained("saved")
assert [path.name for path in pathlib.Path("saved").iterdir()] == ["config.json"]
assert "auto_map" not in json.loads(pathlib.Path("saved/config.json").read_text())
assert not [name for name in sys.modules if name.startswith(("modeling_lion", "tokenization_lion"))]
import modeling_lion, transformers
assert transformers.AutoConfig.from_pretrained("saved").num_labels == 3
lion_preset("lion-text-small").save_pretrained("with_code")
assert len([*pathlib.Path("with_code").glob("*.py")]) == 3
"""
    environment = script_environment() | {"PYTHONPATH": os.pathsep.join(map(str, sys.path))}
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, check=True, timeout=120)


def test_traits_are_those_of_the_classes():
    """What a configuration asks of a mixer or a feature map is the same with and without its class."""
    registry = runpy.run_path(str(ROOT / "configuration_lion" / "registry.py"))
    names = [x.name for x in fields(registry["MixerTraits"])]
    for name, traits in registry["MIXERS"].items():
        assert {x: getattr(MIXERS[name], x) for x in names} == asdict(traits), name
    for name, feature_map in registry["FEATURE_MAPS"].items():
        assert FEATURE_MAPS[name]._replace(function=None) == feature_map, name
    own = {name for name, mixer in MIXERS.items() if mixer.__module__.startswith("modeling_lion.")}
    own |= {name for name, x in FEATURE_MAPS.items() if x.function.__module__.startswith("modeling_lion.")}
    assert own == {*registry["MIXERS"], *registry["FEATURE_MAPS"]}
