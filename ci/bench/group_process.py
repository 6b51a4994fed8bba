"""The process that runs one group and writes its figures, a JSON line each, as they come."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import cast

from bench.registry import Bench, Scale, all_groups


def main(name: str, scale: str, bootstrap_servers: str, directory: str, out: str) -> None:
    group = next(group for group in all_groups() if group.name == name)
    bench = Bench(name, cast(Scale, scale), bootstrap_servers, Path(directory))
    with Path(out).open("w") as lines:
        for figure in group.run(bench):
            print(json.dumps(asdict(figure)), file=lines, flush=True)
            bench.progress(f"{figure.name} = {figure.value:.4g} {figure.unit}")


if __name__ == "__main__":
    main(*sys.argv[1:])
