"""The reader of a figure's pickle, restricted to the classes that figures consist of.

Three lists say what a pickle may name. Of CLASSES it may make empty instances and set their attributes;
what CALLS has it may call, with plain data; FUNCTIONS and METHODS may be kept as attributes, as artists
do. No other name is looked up, none is followed through dots that are not in a list, and no
attribute takes the place of a method, so whatever drawing calls is matplotlib's own.

`check_new`, `check_call` and `check_state` are these rules. The client applies them while it pickles
(figure_pickle.py) and draws by itself what they refuse: lambdas, classes of the program, LaTeX. So the
reader refuses nothing that a client sends.

The file is self-contained (no import of rla_client), as render.py beside it is.
"""

from __future__ import annotations

import functools
import pickle
import re
import types
from datetime import timedelta, tzinfo
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

LATEX_FORMATS = ("pgf",)
# What Figure.savefig and its formats take, less `backend`, which names a module to import.
SAVEFIG_OPTIONS = frozenset({
    "bbox_extra_artists", "bbox_inches", "dpi", "edgecolor", "facecolor", "metadata", "orientation",
    "pad_inches", "papertype", "pil_kwargs", "transparent",
})  # fmt: skip
PROGRAM_SETTINGS = (
    "animation.", "backend", "datapath", "interactive", "keymap.", "pgf.", "ps.usedistiller",
    "savefig.directory", "svg.image_inline", "text.latex", "text.usetex", "toolbar", "webagg.",
)  # fmt: skip
# Where figures find this module: what waits in a spool may be of an earlier release.
OWN_NAMES = ("rla_client.media.figure_reader", "rla_client.figure_reader")
# What a figure's pickle may name: classes of which it may make instances, without arguments, and set
# their attributes. `module: names`; none of them opens, runs or imports anything when it is drawn.
CLASSES = """
builtins: object zip
cycler: Cycler
dateutil.rrule: rrule
dateutil.tz.tz: tzutc
itertools: product
matplotlib.artist: Artist _XYPair
matplotlib.axes._axes: Axes
matplotlib.axes._base: _AxesBase _PropCycle _TransformedBoundsLocator _process_plot_var_args
matplotlib.axes._secondary_axes: SecondaryAxis
matplotlib.axis: Axis Ticker Tick XAxis XTick YAxis YTick
matplotlib.category: StrCategoryConverter StrCategoryFormatter StrCategoryLocator UnitData
matplotlib.cbook: CallbackRegistry Grouper _OrderedSet
matplotlib.cm: ScalarMappable
matplotlib.collections: AsteriskPolygonCollection CircleCollection Collection EllipseCollection
matplotlib.collections: EventCollection FillBetweenPolyCollection LineCollection PatchCollection
matplotlib.collections: PathCollection PolyCollection PolyQuadMesh QuadMesh RegularPolyCollection
matplotlib.collections: StarPolygonCollection TriMesh
matplotlib.colorbar: Colorbar _ColorbarAxesLocator _ColorbarSpine
matplotlib.colorizer: Colorizer _ScalarMappable
matplotlib.colors: AsinhNorm BoundaryNorm CenteredNorm Colormap LinearSegmentedColormap ListedColormap LogNorm
matplotlib.colors: NoNorm Normalize PowerNorm SymLogNorm TwoSlopeNorm
matplotlib.container: BarContainer ErrorbarContainer PieContainer StemContainer
matplotlib.contour: ContourSet QuadContourSet
matplotlib.dates: AutoDateFormatter AutoDateLocator ConciseDateConverter ConciseDateFormatter DateConverter
matplotlib.dates: DateFormatter DateLocator DayLocator HourLocator MicrosecondLocator MinuteLocator
matplotlib.dates: MonthLocator RRuleLocator SecondLocator WeekdayLocator YearLocator
matplotlib.dates: _SwitchableDateConverter rrulewrapper
matplotlib.figure: Figure SubFigure _AxesStack
matplotlib.font_manager: FontProperties
matplotlib.gridspec: GridSpec GridSpecFromSubplotSpec SubplotParams SubplotSpec
matplotlib.image: AxesImage BboxImage FigureImage NonUniformImage PcolorImage
matplotlib.inset: InsetIndicator
matplotlib.layout_engine: ConstrainedLayoutEngine PlaceHolderLayoutEngine TightLayoutEngine
matplotlib.legend: Legend
matplotlib.legend_handler: HandlerCircleCollection HandlerErrorbar HandlerLine2D HandlerLine2DCompound
matplotlib.legend_handler: HandlerLineCollection HandlerPatch HandlerPathCollection HandlerPolyCollection
matplotlib.legend_handler: HandlerRegularPolyCollection HandlerStem HandlerStepPatch HandlerTuple
matplotlib.lines: AxLine Line2D _AxLine
matplotlib.markers: MarkerStyle
matplotlib.offsetbox: AnchoredOffsetbox AnchoredText AnnotationBbox AuxTransformBox DrawingArea HPacker
matplotlib.offsetbox: OffsetImage PaddedBox TextArea VPacker
matplotlib.patches: Annulus Arc Arrow Circle CirclePolygon ConnectionPatch Ellipse FancyArrow FancyArrowPatch
matplotlib.patches: FancyBboxPatch PathPatch Polygon Rectangle RegularPolygon Shadow StepPatch Wedge
matplotlib.patches: ArrowStyle.BarAB ArrowStyle.BracketA ArrowStyle.BracketAB ArrowStyle.BracketB
matplotlib.patches: ArrowStyle.BracketCurve ArrowStyle.Curve ArrowStyle.CurveA ArrowStyle.CurveAB
matplotlib.patches: ArrowStyle.CurveB ArrowStyle.CurveBracket ArrowStyle.CurveFilledA ArrowStyle.CurveFilledAB
matplotlib.patches: ArrowStyle.CurveFilledB ArrowStyle.Fancy ArrowStyle.Simple ArrowStyle.Wedge
matplotlib.patches: BoxStyle.Circle BoxStyle.DArrow BoxStyle.Ellipse BoxStyle.LArrow BoxStyle.RArrow
matplotlib.patches: BoxStyle.Round BoxStyle.Round4 BoxStyle.Roundtooth BoxStyle.Sawtooth BoxStyle.Square
matplotlib.patches: ConnectionStyle.Angle ConnectionStyle.Angle3 ConnectionStyle.Arc ConnectionStyle.Arc3
matplotlib.patches: ConnectionStyle.Bar
matplotlib.path: Path
matplotlib.patheffects: Normal PathPatchEffect SimpleLineShadow SimplePatchShadow Stroke TickedStroke
matplotlib.patheffects: withSimplePatchShadow withStroke withTickedStroke
matplotlib.projections.geo: AitoffAxes AitoffAxes.AitoffTransform AitoffAxes.InvertedAitoffTransform
matplotlib.projections.geo: GeoAxes.ThetaFormatter HammerAxes HammerAxes.HammerTransform
matplotlib.projections.geo: HammerAxes.InvertedHammerTransform LambertAxes
matplotlib.projections.geo: LambertAxes.InvertedLambertTransform LambertAxes.LambertTransform MollweideAxes
matplotlib.projections.geo: MollweideAxes.InvertedMollweideTransform MollweideAxes.MollweideTransform
matplotlib.projections.polar: InvertedPolarTransform PolarAffine PolarAxes PolarTransform RadialAxis
matplotlib.projections.polar: RadialLocator RadialTick ThetaAxis ThetaFormatter ThetaLocator ThetaTick
matplotlib.projections.polar: _AxisWrapper _ThetaShift _WedgeBbox
matplotlib.quiver: Barbs Quiver QuiverKey
matplotlib.scale: AsinhScale AsinhTransform FuncScale FuncScaleLog FuncTransform InvertedAsinhTransform
matplotlib.scale: InvertedLogTransform InvertedSymmetricalLogTransform LinearScale LogScale LogTransform
matplotlib.scale: LogisticTransform LogitScale LogitTransform SymmetricalLogScale SymmetricalLogTransform
matplotlib.spines: Spine Spines
matplotlib.table: Cell CustomCell Table
matplotlib.text: Annotation OffsetFrom Text
matplotlib.textpath: TextPath
matplotlib.ticker: AsinhLocator AutoLocator AutoMinorLocator EngFormatter FixedFormatter FixedLocator
matplotlib.ticker: FormatStrFormatter FuncFormatter IndexLocator LinearLocator LogFormatter
matplotlib.ticker: LogFormatterExponent LogFormatterMathtext LogFormatterSciNotation LogLocator LogitFormatter
matplotlib.ticker: LogitLocator MaxNLocator MultipleLocator NullFormatter NullLocator PercentFormatter
matplotlib.ticker: ScalarFormatter StrMethodFormatter SymmetricalLogLocator _DummyAxis _Edge_integer
matplotlib.transforms: Affine2D AffineDeltaTransform Bbox BboxTransform BboxTransformFrom BboxTransformTo
matplotlib.transforms: BboxTransformToMaxOnly BlendedAffine2D BlendedGenericTransform CompositeAffine2D
matplotlib.transforms: CompositeGenericTransform IdentityTransform LockableBbox ScaledTranslation
matplotlib.transforms: TransformWrapper TransformedBbox TransformedPatchPath TransformedPath _ScaledRotation
matplotlib.tri._tricontour: TriContourSet
matplotlib.tri._triangulation: Triangulation
mpl_toolkits.axes_grid1.anchored_artists: AnchoredAuxTransformBox AnchoredDirectionArrows AnchoredDrawingArea
mpl_toolkits.axes_grid1.anchored_artists: AnchoredSizeBar
mpl_toolkits.axes_grid1.axes_divider: AxesDivider AxesLocator Divider HBoxDivider SubplotDivider VBoxDivider
mpl_toolkits.axes_grid1.axes_grid: CbarAxesBase
mpl_toolkits.axes_grid1.axes_size: Add AxesX AxesY Fixed Fraction MaxExtent MaxHeight MaxWidth Scaled
mpl_toolkits.axes_grid1.inset_locator: AnchoredSizeLocator AnchoredZoomLocator BboxConnector
mpl_toolkits.axes_grid1.inset_locator: BboxConnectorPatch BboxPatch InsetPosition
mpl_toolkits.axes_grid1.mpl_axes: Axes Axes.AxisDict SimpleAxisArtist
mpl_toolkits.axes_grid1.parasite_axes: HostAxesBase ParasiteAxesBase
mpl_toolkits.mplot3d.art3d: Collection3D Line3D Line3DCollection Patch3D Patch3DCollection Path3DCollection
mpl_toolkits.mplot3d.art3d: PathPatch3D Poly3DCollection Text3D
mpl_toolkits.mplot3d.axes3d: Axes3D
mpl_toolkits.mplot3d.axis3d: Axis XAxis YAxis ZAxis
numpy: ndarray
numpy.ma: MaskedArray
numpy.ma.core: MaskedArray
pandas.plotting._matplotlib.converter: DatetimeConverter MilliSecondLocator PandasAutoDateFormatter
pandas.plotting._matplotlib.converter: PandasAutoDateLocator PeriodConverter TimeConverter TimeFormatter
pandas.plotting._matplotlib.converter: TimeSeries_DateFormatter TimeSeries_DateLocator
pandas.plotting._matplotlib.converter: TimeSeries_TimedeltaFormatter
seaborn.categorical: BoxPlotContainer
"""
# Functions that figures keep as attributes and that may stay there; a pickle cannot call them.
FUNCTIONS = """
matplotlib.artist: _stale_axes_callback
matplotlib.axis: Axis._format_with_dict
matplotlib.backend_bases: _key_handler _mouse_handler
matplotlib.cbook: _exception_printer
matplotlib.colorbar: _remove_cbar_axes
matplotlib.figure: _stale_figure_callback
matplotlib.legend_handler: update_from_first_child
pandas.plotting._matplotlib.converter: _annual_finder _daily_finder _monthly_finder _quarterly_finder
pandas.plotting._matplotlib.timeseries: _format_coord
"""
# What a pickle may call, with plain data; the arguments of those in `_ARGUMENTS` are checked one by one.
CALLS = """
builtins: complex range slice
collections: OrderedDict
datetime: date datetime time timedelta timezone
decimal: Decimal
functools: partial
itertools: count
matplotlib._enums: CapStyle JoinStyle
matplotlib.cbook: _picklable_class_constructor
matplotlib.colors: _create_empty_object_of_class
numpy: dtype
numpy._core.multiarray: _reconstruct scalar
numpy._core.numeric: _frombuffer
numpy.core.multiarray: _reconstruct scalar
numpy.core.numeric: _frombuffer
numpy.ma.core: MaskedConstant _mareconstruct
pandas._libs.tslibs.offsets: BusinessDay Day Hour Micro Milli Minute MonthBegin MonthEnd Nano QuarterBegin
pandas._libs.tslibs.offsets: QuarterEnd Second Week YearBegin YearEnd
pandas._libs.tslibs.timestamps: _unpickle_timestamp
rla_client.figure_reader: bound_method numpy_function
rla_client.media.figure_reader: bound_method numpy_function
"""
# Methods that figures keep bound, of any object of CLASSES: they move, hide or measure artists.
METHODS = frozenset({
    "_button_press", "_button_release", "_cbar_cla", "_findoffset", "_forward_boundaries", "_get_view",
    "_inverse_boundaries", "_locate", "_on_move", "_remove_axes", "_remove_legend", "_remove_suplabel",
    "_set_view", "_set_view_from_bbox", "_unit_change_handler", "changed", "delaxes", "drag_pan",
    "get_affine", "get_matrix", "get_subplotspec", "get_window_extent", "inverse", "inverted", "pick",
    "transform", "transform_affine", "transform_non_affine", "transform_path", "transform_path_affine",
    "transform_path_non_affine",
})  # fmt: skip
NUMPY_FUNCTIONS = frozenset({
    "arcsinh", "average", "cbrt", "deg2rad", "degrees", "exp", "exp2", "log", "log10", "log1p", "log2",
    "rad2deg", "radians", "sinh", "sqrt", "square",
})  # fmt: skip
# Method of a class -> what matplotlib itself puts in its place on some objects.
SHADOWS = {"cla": "_cbar_cla", "format_coord": "_format_coord"}
NOT_SENT = (
    "_restore_to_pylab",
    "_plot_data",
)  # orders to open a window; pandas' copy of the data for a next plot
CLASS_FACTORY_FIELDS = (None, "_base_axes_class", "_axes_class_floating")
_DTYPE = re.compile(r"[?bBhHiIlLqQefdgFDGiufcSUVMmOb]\d{0,6}")
_CLASS_NAME = re.compile(r"\w*\{\}\w*")
_PLAIN = (type(None), bool, int, float, complex, str, bytes)


def _listed(table: str) -> frozenset[tuple[str, str]]:
    lines = (line.partition(": ") for line in table.strip().splitlines())
    return frozenset((module, name) for module, _, names in lines for name in names.split())


CLASS_NAMES, FUNCTION_NAMES, CALL_NAMES = _listed(CLASSES), _listed(FUNCTIONS), _listed(CALLS)


class RefusedError(pickle.UnpicklingError):
    """A figure holds something that is not read from a pickle. The text says what."""


def bound_method(owner: object, name: str) -> object:
    """Named by figures: a method of METHODS, of the owner's class and not of its attributes.

    Raises:
        RefusedError: it is none of these.
    """
    if type(owner) is list and name == "remove":
        return owner.remove
    marker = type(owner).__name__ == "MarkerStyle" and name.startswith("_set_")
    function = getattr(type(owner), name, None) if marker or name in METHODS else None
    if not isinstance(function, types.FunctionType):
        raise RefusedError(f"a figure may not hold the method {type(owner).__name__}.{name}")
    return types.MethodType(function, owner)


def numpy_function(name: str) -> Callable[..., Any]:
    """Named by figures: a function of numpy that only computes, as log axes and 3D surfaces have it.

    Raises:
        RefusedError: it is none of NUMPY_FUNCTIONS.
    """
    import numpy as np  # noqa: PLC0415 - not for images and videos

    if name not in NUMPY_FUNCTIONS:
        raise RefusedError(f"a figure may not hold numpy.{name}")
    function: Callable[..., Any] = getattr(np, name)
    return function


def check_new(kind: type, arguments: tuple[Any, ...]) -> None:
    """Whether an instance may be made so; a tuple's content is its argument.

    Raises:
        RefusedError: it may not.
    """
    if arguments and not issubclass(kind, tuple):
        raise RefusedError(f"a figure may not make {kind.__qualname__} with arguments")


def check_call(module: str, name: str, arguments: tuple[Any, ...]) -> None:
    """Whether a name of CALLS may be called with these arguments.

    Raises:
        RefusedError: it may not.
    """
    check = _ARGUMENTS.get(name)
    try:
        fine = _are_plain(arguments) if check is None else check(*arguments)
    except TypeError:  # not as many as there should be
        fine = False
    if not fine:
        raise RefusedError(f"a figure may not call {module}.{name} with these arguments")


def _are_plain(values: tuple[Any, ...]) -> bool:
    return all(type(value) in _PLAIN or isinstance(value, (timedelta, tzinfo)) for value in values)


def _is_dtype(value: object) -> bool:
    import numpy as np  # noqa: PLC0415 - not for images and videos

    return isinstance(value, np.dtype)


def _is_code(value: object) -> bool:
    return isinstance(value, (types.MethodType, types.FunctionType))  # each was checked where it was named


_ARGUMENTS: dict[str, Callable[..., bool]] = {
    "OrderedDict": lambda: True,
    "bound_method": lambda _owner, name: type(name) is str,
    "dtype": lambda code, *rest: type(code) is str and bool(_DTYPE.fullmatch(code)) and _are_plain(rest),
    "partial": _is_code,
    "scalar": lambda dtype, data: _is_dtype(dtype) and not dtype.hasobject and type(data) is bytes,
    "_create_empty_object_of_class": lambda kind: isinstance(kind, type),
    "_frombuffer": lambda data, dtype, shape, order: (
        isinstance(data, (bytes, bytearray, pickle.PickleBuffer)) and _is_dtype(dtype)
    ) and (type(shape), type(order)) == (tuple, str),
    "_mareconstruct": lambda kind, base, shape, code: (
        isinstance(kind, type) and isinstance(base, type) and shape == (0,) and _are_plain((code,))
    ),
    "_picklable_class_constructor": lambda mixin, text, field, base: (
        isinstance(mixin, type) and isinstance(base, type) and field in CLASS_FACTORY_FIELDS
    ) and type(text) is str and bool(_CLASS_NAME.fullmatch(text)),
    "_reconstruct": lambda kind, shape, code: (
        isinstance(kind, type) and shape == (0,) and _are_plain((code,))
    ),
}  # fmt: skip


def check_state(owner: object, state: object) -> None:
    """Whether these attributes may be set on an object.

    Raises:
        RefusedError: one would take the place of a method, needs LaTeX, or lies about the object's memory.
    """
    kind = type(owner)
    if kind is functools.partial:
        fine = type(state) is tuple and len(state) == 4 and _is_code(state[0])  # noqa: PLR2004
        _check_attributes(kind, (state[3] if fine and isinstance(state, tuple) else None) or {})
    elif _is_dtype(owner):
        fine = type(state) is tuple and _fits_dtype(owner, *state)
    elif kind.__module__.startswith("numpy"):  # numpy itself checks the bytes of an array against its dtype
        fine = type(state) is tuple
    else:
        parts: Any = state if type(state) is tuple and len(state) == 2 else (state,)  # noqa: PLR2004 - with slots
        fine = all(part is None or type(part) is dict for part in parts)
        for part in parts if fine else ():
            _check_attributes(kind, part or {})
        slots = parts[1] if fine and len(parts) > 1 else None
        fine = fine and all(
            isinstance(getattr(kind, key, None), types.MemberDescriptorType) for key in slots or ()
        )
    if not fine:
        raise RefusedError(f"the state of a {kind.__qualname__} in a figure is none that it gives itself")


def _fits_dtype(dtype: Any, *state: Any) -> bool:  # noqa: ANN401
    """Whether a dtype's state only says byte order and unit: a made-up layout would reach foreign memory."""
    _, _, *parts, size, alignment, flags = state[:8]
    metadata = state[8][0] if len(state) > 8 else None  # noqa: PLR2004 - of dates
    same = size in {-1, dtype.itemsize} and alignment in {-1, dtype.alignment} and flags == dtype.flags
    return same and parts == [None, None, None] and not metadata


def _check_attributes(kind: type, state: dict[Any, Any]) -> None:
    for key in state:
        if type(key) is not str or (key.startswith("__") and key != "__mpl_version__"):
            raise RefusedError(f"a figure may not set {key!r:.50}")
    if state.get("_usetex"):
        raise RefusedError("it has text for LaTeX")
    for key in state.keys() & _methods(kind):
        value = state[key]
        code = value.func if isinstance(value, functools.partial) else value
        if not _is_code(code) or code.__name__ not in {key, SHADOWS.get(key)}:
            raise RefusedError(f"a figure may not replace {kind.__qualname__}.{key}")


@functools.cache
def _methods(kind: type) -> frozenset[str]:
    return frozenset(name for name in dir(kind) if callable(getattr(kind, name, None)))


class _Callable:
    """Stands on the stack for a name of CALLS; nobody but `load_reduce` can call it."""

    __slots__ = ("module", "name", "target")

    def __init__(self, module: str, name: str, target: Callable[..., Any]) -> None:
        self.module, self.name, self.target = module, name, target


_NO_OPCODES = (
    pickle.INST, pickle.OBJ, pickle.NEWOBJ_EX, pickle.EXT1, pickle.EXT2, pickle.EXT4, pickle.PERSID,
    pickle.BINPERSID, pickle.NEXT_BUFFER,
)  # fmt: skip
_FILLING = {pickle.APPEND: -2, pickle.SETITEM: -3, pickle.APPENDS: 0, pickle.SETITEMS: 0, pickle.ADDITEMS: 0}


def _filling(code: int, at: int) -> Callable[[Any], None]:
    """APPEND and the like: on containers only, whose methods no figure can replace."""
    load = pickle._Unpickler.dispatch[code]  # noqa: SLF001

    def fill(unpickler: Any) -> None:  # noqa: ANN401 - attributes that no stub has
        if not isinstance(unpickler.stack[at] if at else unpickler.metastack[-1][-1], (list, dict, set)):
            raise RefusedError("a figure may fill lists, sets and dicts only")
        load(unpickler)

    return fill


_build_checked: Callable[[Any], None] = pickle._Unpickler.dispatch[pickle.BUILD[0]]  # noqa: SLF001


class FigureUnpickler(pickle._Unpickler):  # noqa: SLF001 - the C one would call whatever it finds
    """Makes figures of the classes in CLASSES, calls what CALLS lists, and nothing else.

    Raises:
        RefusedError: the pickle asks for anything else.
    """

    dispatch: ClassVar[dict[int, Any]] = dict(pickle._Unpickler.dispatch)  # noqa: SLF001
    stack: list[Any]
    append: Callable[[Any], None]

    def find_class(self, module: str, name: str) -> object:
        """Resolve a global of the pickle."""
        if module in OWN_NAMES and name == "bound_method":
            return _Callable(module, name, bound_method)
        if module in OWN_NAMES and name == "numpy_function":
            return _Callable(module, name, numpy_function)
        for names in (CLASS_NAMES, FUNCTION_NAMES, CALL_NAMES):
            if (module, name) in names:
                found = super().find_class(module, name)
                if names is CALL_NAMES:
                    return _Callable(module, name, found)
                if isinstance(found, type) is (names is CLASS_NAMES):
                    return found
        raise RefusedError(f"a figure may not name {module}.{name}")

    def _new(self) -> None:
        arguments = self.stack.pop()
        kind = self.stack.pop()
        if not isinstance(kind, type) or type(arguments) is not tuple:
            raise RefusedError("a figure may make objects of classes only")
        check_new(kind, arguments)
        self.append(kind.__new__(kind, *arguments))

    def _reduce(self) -> None:
        arguments = self.stack.pop()
        function = self.stack.pop()
        if not isinstance(function, _Callable) or type(arguments) is not tuple:
            raise RefusedError(f"a figure may not call {function!r:.100}")
        check_call(function.module, function.name, arguments)
        self.append(function.target(*arguments))

    def _build(self) -> None:
        state, owner = self.stack[-1], self.stack[-2]
        if isinstance(owner, (type, _Callable, types.FunctionType, types.MethodType)):
            raise RefusedError(f"a figure may not change {owner!r:.100}")
        check_state(owner, state)
        if isinstance(state, dict):
            for key in NOT_SENT:
                state.pop(key, None)
        _build_checked(self)

    def _refuse(self) -> None:
        raise RefusedError("a figure's pickle has no such opcode")

    dispatch.update(
        {
            pickle.NEWOBJ[0]: _new,
            pickle.REDUCE[0]: _reduce,
            pickle.BUILD[0]: _build,
            **dict.fromkeys((code[0] for code in _NO_OPCODES), _refuse),
            **{code[0]: _filling(code[0], depth) for code, depth in _FILLING.items()},
        }
    )


def check_payload(payload: Mapping[str, Any], format_: str) -> None:
    """Whether the parts of a figure blob are what they should be, none of which starts a program.

    Raises:
        RefusedError: they are not.
    """
    from matplotlib.axes import Axes  # noqa: PLC0415 - not for images and videos
    from matplotlib.figure import FigureBase  # noqa: PLC0415

    figure, options, decoration = payload["figure"], payload["options"], payload.get("decoration") or {}
    if not isinstance(figure, FigureBase) or not isinstance(decoration.get("axes"), (Axes, type(None))):
        raise RefusedError("this is not a figure")
    if format_ in LATEX_FORMATS or not options.keys() <= SAVEFIG_OPTIONS:
        raise RefusedError(
            f"it asks for {format_} or for other options than {', '.join(sorted(SAVEFIG_OPTIONS))}"
        )
    if any(not is_style(key, value) for key, value in payload["rc"].items()):
        raise RefusedError("it brings settings that are not styles")
    if not all(_is_data(options.get(name)) for name in ("metadata", "pil_kwargs")):
        raise RefusedError("metadata and pil_kwargs must be plain data")


def is_style(key: object, value: object) -> bool:
    """Whether a setting of matplotlib travels: those that start programs or evaluate text stay behind."""
    named = type(key) is str and not key.startswith(PROGRAM_SETTINGS)
    return named and not (key == "axes.prop_cycle" and isinstance(value, str))


def _is_data(value: object) -> bool:
    if isinstance(value, dict):
        return all(map(_is_data, value.items()))
    return all(map(_is_data, value)) if isinstance(value, (list, tuple)) else _are_plain((value,))
