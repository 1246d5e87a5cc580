# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Results of the cases of tests/triton/: failures first, and the smallest case of each kind."""

import json
import re
from pathlib import Path

from gpu.sources import digest_of


CASES = ("tests/triton/triton_cases.py", "tests/triton/model_cases.py")
# In Triton's interpreter and on the CPU: some of each kind.
REHEARSED = "silu_norm_is_one or (naive_form and float32 and sum and (None-lit-chunk or None-selective-parallel))"
REHEARSED += " or (linearized and text-lit) or (forward_and and recommended-image and float32)"
REHEARSED += " or (trainer and text) or cuda_graphs"


def key_of_sources(gpu: str) -> str:
    """Changes with the GPU and with every file that the cases run or are."""
    return digest_of(("modeling_lion", "configuration_lion", "tests/triton", "tests/support"), gpu)


def comes_first(case: str) -> bool:
    """
    Whether it is one of decays in TensorFloat-32: most of what ever failed on a GPU. Their products take an operand
    from registers (tests/triton/test_sources.py).
    """
    return "tf32" in case and ("decay" in case or "selective" in case)


def in_order(cases: list[str], processes: int) -> list[str]:
    """
    Put what comes first at the start of what each process gets: pytest-xdist gives each as many cases in a row.
    """
    first = [case for case in cases if comes_first(case)]
    rest = [case for case in cases if not comes_first(case)]
    found, left = [], len(cases)
    for i in range(processes):
        own = first[i::processes]
        count = left // (processes - i)
        left -= count
        found += own + [rest.pop(0) for _ in range(min(len(rest), max(0, count - len(own))))]
    return found + rest


def outcomes(file: Path, key: str) -> dict[str, dict]:
    """The last outcome of each case with these sources; a crash does not replace a failure."""
    lines = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    found = {}
    for line in lines:
        is_crash = found.get(line["id"], {}).get("outcome") == "failed" and "crashed" in line["message"]
        if line["key"] == key and not is_crash:  # the message of the case itself says more
            found[line["id"]] = line
    return found


def size_of(case: str) -> tuple:
    """Sort key: the smaller case has smaller numbers in its name."""
    return sum(int(x) for x in re.findall(r"(?<![a-z\d])\d+(?!\d)", case.partition("[")[2])), case


def summary(found: dict[str, dict], count: int) -> str:
    """For a person who has a minute. `count`: how many cases there are."""
    of = lambda outcome: [line for line in found.values() if line["outcome"] == outcome]
    failed, passed, skipped = of("failed"), of("passed"), of("skipped")
    if not failed and not passed:
        return f"NOTHING WAS CHECKED: of {count} cases, none has run"
    text = f"{len(failed)} of {len(failed) + len(passed)} cases fail"
    text += f" ({len(skipped)} are not for this machine)" if skipped else ""
    lines = [text if len(found) >= count else f"{text}; {count - len(found)} of {count} have not run: call again"]
    kinds = {}
    for line in failed:
        kinds.setdefault(line["id"].partition("[")[0], []).append(line)
    for kind, some in sorted(kinds.items(), key=lambda pair: -len(pair[1])):
        smallest = min(some, key=lambda line: size_of(line["id"]))
        message = " ".join(smallest["message"].split())[:300]
        lines.append(f"{kind}: {len(some)} fail; the smallest: {smallest['id'].partition('::')[2]}\n    {message}")
    slowest = sorted(passed, key=lambda line: -line["seconds"])[:3]
    lines += [f"slowest: {line['seconds']:.0f} s, {line['id']}" for line in slowest if line["seconds"] > 20]
    return "\n".join(lines)
