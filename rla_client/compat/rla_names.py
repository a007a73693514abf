"""Names of RLA's modules, with their places in rla_client."""

from __future__ import annotations

from collections.abc import Iterable

# module of the original → source of its names: a whole module of rla_client, or name → (module, name)
WHOLE = {
    "RLA.easy_log.logger": "rla_client.logger",
    "RLA.easy_log.time_used_recorder": "rla_client.run.record.time_tracker",
}
_LOADER = (
    "ExperimentLoader", "exp_loader", "experimental_loader", "fork_log_file_fn", "update_hyper_parameters_fn",
)  # fmt: skip
_TOOLS = ("DeleteLogTool", "ArchiveLogTool", "MigrateLogTool", "ViewLogTool", "PrettyPlotterTool", "Filter")
_QUERY = (
    "experiment_data_query", "single_experiment_query", "extract_valid_index", "BasicQueryResult",
    "ArchiveQueryResult", "LogQueryResult", "HyperParamResult", "CkpResult", "OtherQueryResult",
)  # fmt: skip
_KINDS = (
    "LOG", "CODE", "CHECKPOINT", "ARCHIVE_TESTER", "HYPARAMETER", "OTHER_RESULTS", "TMP_DATA",
    "ARCHIVED_TABLE", "HYPARAM_FILE_NAME",
)  # fmt: skip
_TOP = (
    "exp_manager", "logger", "time_step_holder", "plot_func", "MatplotlibRecorder", "ImgRecorder",
    "ExperimentLoader", "fork_log_file_fn", "update_hyper_parameters_fn", "experiment_data_query",
    "single_experiment_query", "time_tracker",
)  # fmt: skip
_CONSTANTS = (
    "DEFAULT_X_NAME", "DEFAULT_TIMESTAMP", "FRAMEWORK", "FTP_PROTOCOL_NAME", "LOG_NAME_FORMAT_VERSION",
    "PLATFORM_TYPE",
)  # fmt: skip


def _of(home: str, names: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Names that come from one module of rla_client."""
    return {name: (home, name) for name in names}


RLA_NAMES: dict[str, str] = {  # name that RLA or its tools offer → where it is
    **dict.fromkeys(_TOP, "rla_client"),
    **dict.fromkeys(_TOOLS, "rla_client.database"),
    **dict.fromkeys(("experiment_data_query", "single_experiment_query"), "rla_client.database"),
    **dict.fromkeys(("fork_log_file_fn", "update_hyper_parameters_fn"), "rla_client.loader"),
    **dict.fromkeys(("simple_plot", "simple_hist", "simple_scatter"), "rla_client.media.simple_plots"),
    "plot_saved_images": "rla_client.plot",
    **dict.fromkeys((*_KINDS, "DEFAULT_LOG_TYPES"), "rla_client.contract.layout"),
    **dict.fromkeys(
        (*_CONSTANTS, "LoadTesterMode", "LogDataType", "default_log_types"), "rla_client.compat.constants"
    ),
}
_CONST = _of("rla_client.compat.constants", _CONSTANTS)
_EASY_CONST = {
    **_of("rla_client.contract.layout", _KINDS),
    "HYPARAM": ("rla_client.contract.layout", "HYPARAM_FILE_NAME"),
    "default_log_types": ("rla_client.compat.constants", "default_log_types"),
    "LogDataType": ("rla_client.compat.constants", "LogDataType"),
    "LoadTesterMode": ("rla_client.compat.constants", "LoadTesterMode"),
}
_UTILS = _of("rla_client.compat.small_functions", ("load_yaml", "deprecated_alias", "get_dir_seperator"))
_TIMES = ("time_record", "time_record_end", "time_tracker", "TimeTracker", "SingleTimeTracker")
_DEPRECATED = ("import_hyper_parameters", "load_from_record_date", "fork_tester_log_files")
NAMES: dict[str, dict[str, tuple[str, str]]] = {
    "RLA": {**_of("rla_client", _TOP), **_EASY_CONST, **_CONST},
    "RLA.easy_log": {"logger": ("rla_client", "logger")},
    "RLA.easy_log.tester": {
        **_of("rla_client.manager", ("exp_manager", "tester", "Tester")),
        **_of("rla_client.compat.earlier_runs", _DEPRECATED),
        "logger": ("rla_client", "logger"),
        "time_step_holder": ("rla_client", "time_step_holder"),
        **_EASY_CONST,
        **_CONST,
        **_UTILS,
    },
    "RLA.easy_log.tools": {
        **_of("rla_client.run.record.time_tracker", ("time_record", "time_record_end")),
        "time_used_wrap": ("rla_client.compat.small_functions", "time_used_wrap"),
        "DeleteLogTool": ("rla_client.database", "DeleteLogTool"),
    },
    "RLA.easy_log.delete_log_tool": {"DeleteLogTool": ("rla_client.database", "DeleteLogTool")},
    "RLA.trackers": {},
    "RLA.trackers.time_used_recorder": _of("rla_client.run.record.time_tracker", _TIMES),
    "RLA.trackers.memory_used_recorder": {
        "print_large_memory_variable": ("rla_client.compat.small_functions", "print_large_memory_variable"),
    },
    "RLA.easy_log.time_step": {
        "time_step_holder": ("rla_client.stream.clock", "time_step_holder"),
        "TimeStepHolder": ("rla_client.stream.clock", "TimeStepHolder"),
    },
    "RLA.easy_log.simple_mat_plot": _of(
        "rla_client.media.simple_plots", ("simple_plot", "simple_hist", "simple_scatter")
    ),
    "RLA.easy_log.complex_data_recorder": _of(
        "rla_client", ("MatplotlibRecorder", "ImgRecorder", "VideoRecorder")
    ),
    "RLA.easy_log.exp_loader": {
        **_of("rla_client.loader", _LOADER),
        **_of("rla_client.manager", ("exp_manager", "Tester")),
        "logger": ("rla_client", "logger"),
        "DEFAULT_X_NAME": _CONST["DEFAULT_X_NAME"],
        "experiment_data_query": ("rla_client.database", "experiment_data_query"),
    },
    "RLA.easy_log.log_tools": _of("rla_client.database", _TOOLS),
    "RLA.rla_argparser": _of(
        "rla_client.compat.arguments", ("argparse", "arg_parser_postprocess", "boolean_flag")
    ),
    "RLA.easy_log.const": _EASY_CONST,
    "RLA.const": _CONST,
    "RLA.easy_plot": {},
    "RLA.easy_plot.plot_func_v2": {
        "plot_func": ("rla_client", "plot_func"),
        "default_key_to_legend": ("rla_client.plot.selected_runs", "default_key_to_legend"),
    },
    "RLA.easy_plot.plot_func": {
        "plot_func": ("rla_client", "plot_func"),
        "plot_res_func": ("rla_client.compat.result_curves", "plot_res_func"),
    },
    "RLA.easy_plot.plot_saved_images": {"plot_saved_images": ("rla_client", "plot_saved_images")},
    "RLA.easy_plot.result_cls": {name: ("rla_client.database", name) for name in _QUERY if name[0].isupper()},
    "RLA.query_tool": {
        **_of("rla_client.database", _QUERY),
        **_EASY_CONST,
        "Tester": ("rla_client.manager", "Tester"),
    },
    "RLA.utils": {},
    "RLA.utils.utils": _UTILS,
}


_PLOT = "plot_func of rla_client draws curves from the database"
_CURVES = "rla_client.database.open(data_root).curves(...) gives the curves as a DataFrame"
_OUTPUTS = "LOG_USED in rla_config.yaml names the outputs; rla_client writes them itself"
_OWN = "write it in the script; it has nothing to do with logging"
_SAVE = "exp_manager.new_saver, save_checkpoint and load_checkpoint do this for PyTorch and TensorFlow 2"
INSTEAD: dict[str, dict[str, str]] = {  # module → name ("" for all others of it) → what to use
    "RLA.auto_ftp": {"": "the agent replicates; REMOTE_SETTING in rla_config.yaml names the master"},
    "RLA.email_send": {"": "rules under ALERTS in rla_config.yaml send mail, exp_manager.alert a message"},
    "RLA.emb_test": {"": "tests of a script belong into pytest"},
    "RLA.exp_loader": {"": "ExperimentLoader of rla_client loads earlier runs"},
    "RLA.exp_loader.utils": {"": "experiment_data_query of rla_client finds earlier runs"},
    "RLA.easy_plot.plot_util": {"": _PLOT, "load_results": _CURVES},
    "RLA.easy_plot.load_images": {"": "plot_saved_images of rla_client shows images side by side"},
    "RLA.easy_plot.utils": {"": _CURVES},
    "RLA.easy_tf": {"": _SAVE},
    "RLA.easy_tf.saver_tools": {"": _SAVE},
    "RLA.easy_tf.tools": {"": _OWN},
    "RLA.easy_torch": {"": _SAVE},
    "RLA.easy_torch.save_tools": {"": _SAVE},
    "RLA.utils.tf_util": {"": _OWN},
    "RLA.utils.utils": dict.fromkeys(
        ("get_sys_type", "rename_kwargs", "set_or_append", "set_or_keep", "optional_set"), _OWN
    ),
    "RLA.easy_plot.plot_func": dict.fromkeys(
        (
            "default_key_to_legend", "split_by_task", "split_by_reg", "auto_gen_key_value_name",
            "picture_split", "csv_to_xy", "word_replace", "word_replace_back", "scale_index_to_dict",
            "show_plt",
        ),
        _PLOT,
    ),
    "RLA.easy_plot.plot_func_v2": dict.fromkeys(
        ("meta_csv_data_loader_func", "split_by_reg", "split_by_task", "picture_split", "csv_to_xy"), _PLOT
    ),
    "RLA.easy_plot.plot_saved_images": {"meta_image_data_loader_func": "plot_saved_images reads them itself"},
    "RLA.easy_plot.result_cls": dict.fromkeys(("Result", "CsvResult", "ImgResult"), _CURVES),
    "RLA.easy_log.log_tools": {
        "BasicLogTool": "DeleteLogTool and the other tools of rla_client.database stand alone",
        "DownloadLogTool": "`rla pull` brings runs from the master",
    },
    "RLA.easy_log.complex_data_recorder": {"format_name": "MatplotlibRecorder.save makes the names itself"},
    "RLA.easy_log.tools": {"rc_start_time": "time_record and time_record_end keep the times"},
    "RLA.trackers.time_used_recorder": {"rc_start_time": "time_record and time_record_end keep the times"},
    "RLA.easy_log.time_used_recorder": {"rc_start_time": "time_record and time_record_end keep the times"},
    "RLA.easy_log.logger": {
        **dict.fromkeys(
            (
                "KVWriter", "SeqWriter", "HumanOutputFormat", "JSONOutputFormat", "CSVOutputFormat",
                "TensorBoardOutputFormat", "make_output_format", "summary_val", "valid_float_value",
            ),
            _OUTPUTS,
        ),
        "ma_dict": "ma_record_tabular keeps the windows",
        "lst_print_dict": "record_tabular(..., freq=n) keeps the times",
    },
}  # fmt: skip
