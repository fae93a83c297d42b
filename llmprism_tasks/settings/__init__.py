"""All settings: a section for each part of the pipeline, each number with its default, unit, range and reason."""

from __future__ import annotations

from dataclasses import dataclass, field

from llmprism_tasks.settings.diagnosis import DiagnosisSettings
from llmprism_tasks.settings.parallelism import ParallelismSettings
from llmprism_tasks.settings.platform import (
    BatchSettings,
    CatchUpSettings,
    ColumnSettings,
    MethodSettings,
    NotifySettings,
    PlaceSettings,
    RetentionSettings,
    ValidationSettings,
    WarehouseSettings,
    WindowSettings,
)
from llmprism_tasks.settings.published import PublishedSettings
from llmprism_tasks.settings.recognition import RecognitionSettings
from llmprism_tasks.settings.step_division import RhythmSettings
from llmprism_tasks.settings.timeline import TimelineSettings
from llmprism_tasks.settings.traffic import TrafficSettings

__all__ = [
    "BatchSettings",
    "CatchUpSettings",
    "ColumnSettings",
    "DiagnosisSettings",
    "MethodSettings",
    "NotifySettings",
    "ParallelismSettings",
    "PlaceSettings",
    "PublishedSettings",
    "RecognitionSettings",
    "RetentionSettings",
    "RhythmSettings",
    "Settings",
    "TimelineSettings",
    "TrafficSettings",
    "ValidationSettings",
    "WarehouseSettings",
    "WindowSettings",
]


@dataclass(frozen=True)
class Settings:
    """All settings, one section each."""

    window: WindowSettings = field(default_factory=WindowSettings)
    places: PlaceSettings = field(default_factory=PlaceSettings)
    columns: ColumnSettings = field(default_factory=ColumnSettings)
    warehouse: WarehouseSettings = field(default_factory=WarehouseSettings)
    retention: RetentionSettings = field(default_factory=RetentionSettings)
    validation: ValidationSettings = field(default_factory=ValidationSettings)
    notify: NotifySettings = field(default_factory=NotifySettings)
    catch_up: CatchUpSettings = field(default_factory=CatchUpSettings)
    batches: BatchSettings = field(default_factory=BatchSettings)
    method: MethodSettings = field(default_factory=MethodSettings)
    traffic: TrafficSettings = field(default_factory=TrafficSettings)
    rhythm: RhythmSettings = field(default_factory=RhythmSettings)
    recognition: RecognitionSettings = field(default_factory=RecognitionSettings)
    parallelism: ParallelismSettings = field(default_factory=ParallelismSettings)
    timeline: TimelineSettings = field(default_factory=TimelineSettings)
    diagnosis: DiagnosisSettings = field(default_factory=DiagnosisSettings)
    published: PublishedSettings = field(default_factory=PublishedSettings)
