"""What PyTorch says of its memory at a mark, for train.py and streams.py; `import tidemark` works wherever TIDEMARK_PY names it."""
import json
import os
import sys

import torch

sys.path.insert(0, os.environ.get("TIDEMARK_PY", "."))
import tidemark  # noqa: E402


class Figures:
    def __init__(self, device):
        self.device = device
        self.all = {"torch": torch.__version__, "cuda": torch.version.cuda, "device": torch.cuda.get_device_name(0), "marks": [],
                    "device_bytes": torch.cuda.get_device_properties(0).total_memory}

    def mark(self, name):
        torch.cuda.synchronize()
        stats = torch.cuda.memory_stats(self.device)
        free, total = torch.cuda.mem_get_info(self.device)
        tidemark.mark(name)
        segments = [{"address": s["address"], "size": s["total_size"]} for s in torch.cuda.memory_snapshot() if s["device"] == 0]
        self.all["marks"].append({"name": name, "allocated": stats["allocated_bytes.all.current"], "reserved": stats["reserved_bytes.all.current"],
                                  "active": stats["active_bytes.all.current"], "inactive": stats["inactive_split_bytes.all.current"],
                                  "allocated_peak": stats["allocated_bytes.all.peak"], "reserved_peak": stats["reserved_bytes.all.peak"],
                                  "allocations": stats["allocation.all.allocated"], "segments": segments, "free": free, "total": total})

    def refuse(self):
        """Asks for more than there is."""
        try:
            torch.empty(1 << 50, dtype=torch.uint8, device=self.device)
        except torch.OutOfMemoryError:
            self.all["refused"] = torch.cuda.memory_stats(self.device)["num_ooms"]

    def write(self, path, step_s):
        self.all["step_s"] = step_s
        with open(path, "w", encoding="ascii") as file:
            json.dump(self.all, file, indent=1)
