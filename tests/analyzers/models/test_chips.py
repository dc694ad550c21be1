"""The table of chips and the matching of device names."""

from __future__ import annotations

import pytest

from stallscope.analyzers.models.chips import CHIPS, GIB, chip_of_device, find_chip

MATCHES = [
    ("NVIDIA H100 80GB HBM3", "H100 SXM5"),
    ("NVIDIA H100 PCIe", "H100 PCIe"),
    ("NVIDIA H100 NVL", "H100 NVL"),
    ("NVIDIA H200", "H200 SXM"),
    ("NVIDIA H20", "H20"),
    ("NVIDIA B200", "B200"),
    ("NVIDIA GB200", "GB200"),
    ("NVIDIA A100-SXM4-40GB", "A100 SXM4 40GB"),
    ("NVIDIA A100-SXM4-80GB", "A100 SXM4 80GB"),
    ("NVIDIA A100-PCIE-40GB", "A100 PCIe 40GB"),
    ("NVIDIA A100 80GB PCIe", "A100 PCIe 80GB"),
    ("Tesla V100-SXM2-16GB", "V100 SXM2"),
    ("Tesla V100-PCIE-32GB", "V100 PCIe"),
    ("Tesla T4", "T4"),
    ("NVIDIA A10", "A10"),
    ("NVIDIA L4", "L4"),
    ("NVIDIA L40S", "L40S"),
    ("NVIDIA GeForce RTX 3090", "RTX 3090"),
    ("NVIDIA GeForce RTX 4080 Laptop GPU", "RTX 4080 Laptop"),
    ("NVIDIA GeForce RTX 4090", "RTX 4090"),
    ("NVIDIA GeForce RTX 5080", "RTX 5080"),
    ("NVIDIA GeForce RTX 5090", "RTX 5090"),
    ("AMD Instinct MI210", "MI210"),
    ("AMD Instinct MI300X", "MI300X"),
    ("AMD Instinct MI300X VF", "MI300X"),
    ("AMD Instinct MI325X", "MI325X"),
    ("AMD Instinct MI355X", "MI355X"),
    ("Ascend910A", "Ascend 910A"),
    ("Ascend910B1", "Ascend 910B1"),
    ("Ascend910B3", "Ascend 910B3"),
    ("Ascend910B4", "Ascend 910B4"),
    ("Ascend910_9391", "Ascend 910C (one of two dies)"),
    ("Ascend310P3", "Ascend 310P"),
]

UNKNOWN = [
    "NVIDIA A10G",
    "NVIDIA A100-SXM4-40GB MIG 1g.5gb",
    "NVIDIA H100 80GB HBM3 MIG 3g.40gb",
    "NVIDIA L40",
    "NVIDIA GeForce RTX 4090 Laptop GPU",
    "NVIDIA GeForce RTX 3090 Ti",
    "NVIDIA RTX A4000",
    "NVIDIA T400",
    "AMD Instinct MI300A",
    "AMD Instinct MI308X",
    "AMD Radeon RX 7900 XTX",
    "Ascend910B",
    "Ascend910_95",
    "Intel(R) Xeon(R) Platinum 8480",
    "cpu",
]


@pytest.mark.parametrize(("printed", "name"), MATCHES)
def test_devices_are_found_by_their_names(printed: str, name: str) -> None:
    chip = find_chip(printed)
    assert chip is not None and chip.name == name


@pytest.mark.parametrize("printed", UNKNOWN)
def test_what_only_looks_like_a_known_chip_stays_unknown(printed: str) -> None:
    assert find_chip(printed) is None


def test_a_partition_is_told_by_its_cores() -> None:
    assert find_chip("AMD Instinct MI300X", cores=304) is not None
    assert find_chip("AMD Instinct MI300X", cores=38) is None


def test_nameless_devices_are_found_by_properties_that_fit_one_chip() -> None:
    chip = find_chip("", memory_bytes=206_141_652_992, cores=304, capability=(9, 4))
    assert chip is not None and chip.name == "MI300X"
    bigger = find_chip("", memory_bytes=255 * GIB, cores=304)
    assert bigger is not None and bigger.name == "MI325X"
    # MI210 and half an MI250 have the same figures, so they need not be told apart
    either = find_chip("AMD Radeon Graphics", memory_bytes=68_702_699_520, cores=104, capability=(9, 0))
    assert either is not None and either.name == "MI210 or MI250 (one of two dies)"
    # an H100 SXM and no other has 80 GiB and 132 cores; four A100 have 108, of different bandwidth
    assert find_chip("", memory_bytes=79 * GIB, cores=108) is None
    assert find_chip("", cores=304) is None and find_chip("") is None


def test_the_shared_name_of_mi250_is_told_by_its_compute_units() -> None:
    name = "AMD Instinct MI250X / MI250"
    assert find_chip(name) is None
    x, plain = find_chip(name, cores=110), find_chip(name, cores=104)
    assert (
        x is not None
        and x.name.startswith("MI250X")
        and plain is not None
        and plain.name.startswith("MI250 ")
    )


def test_recorded_cores_and_clock_of_an_ascend_replace_the_table() -> None:
    chip = find_chip("Ascend910B4", cores=20, clock_mhz=1500)
    assert chip is not None
    assert chip.peaks["bf16"].value == 20 * 1500e6 * 8192 == 245.76e12
    assert chip.peaks["int8"].value == 2 * 245.76e12 and chip.peaks["bf16"].confidence == "derived"


def test_a_session_tells_its_chip() -> None:
    chip = chip_of_device({"name": "NVIDIA H100 80GB HBM3", "memory_bytes": 85_018_279_936, "cores": 132,
                           "compute_major": 9, "compute_minor": 0})  # fmt: skip
    assert chip is not None and chip.name == "H100 SXM5"
    assert (
        chip_of_device({}) is None
        and chip_of_device({"name": None, "cores": "132", "memory_bytes": -1}) is None
    )


@pytest.mark.parametrize("chip", CHIPS, ids=lambda chip: chip.name)
def test_figures_are_sane_and_sourced(chip: object) -> None:
    assert chip in CHIPS
    found = next(c for c in CHIPS if c is chip)
    for kind, figure in found.peaks.items():
        assert kind in ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "int8", "fp4")
        assert 1e12 < figure.value < 1e17 and figure.source
    # dense rates double from one width to the next, so a sparse figure would stand out
    for wide, narrow in (("tf32", "bf16"), ("bf16", "fp8"), ("bf16", "int8"), ("fp8", "fp4")):
        if wide in found.peaks and narrow in found.peaks:
            assert 0.99 <= found.peaks[narrow].value / found.peaks[wide].value <= 4.05
    if found.bandwidth is not None:
        assert 1e11 < found.bandwidth.value < 1e13 and found.bandwidth.source


def test_names_are_unique_and_unknown_peaks_stay_unknown() -> None:
    assert len({chip.name for chip in CHIPS}) == len(CHIPS)
    a100 = find_chip("NVIDIA A100-SXM4-80GB")
    assert a100 is not None
    assert a100.peak("fp8") is None and a100.peak("int4") is None and a100.peak("") is None
    npu = find_chip("Ascend910B3")
    assert npu is not None and npu.peak("fp32", "vector") is None
