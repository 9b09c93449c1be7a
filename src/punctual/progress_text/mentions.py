"""Numbers of one line that may be a count, and their totals."""

import re
from dataclasses import dataclass, replace
from enum import IntEnum, auto
from itertools import islice


class Unit(IntEnum):
    """Sizes of the pieces of a training that are counted, the smallest first."""

    UNKNOWN = auto()
    SAMPLE = auto()
    BATCH = auto()
    STEP = auto()
    EPOCH = auto()
    ROUND = auto()
    FOLD = auto()


class Role(IntEnum):
    """Owners of a number, by the words before it: something else, perhaps the training, or the training."""

    OTHER = auto()
    NEUTRAL = auto()
    TRAINING = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Mention:
    """A number of a line that may be a count.

    Attributes
    ----------
    template
        The text before the number, other numbers taken out.
    process
        Number of the process that writes the line; empty if the line does not name it.
    family
        The word for the counted thing, one for all its forms; empty if the line has none.
    step, total
        The numbers; `total` is None if the line does not say it.
    is_total
        The number is a total itself, by its name: ``max_steps=100``, ``epochs: 3``.
    is_lap
        The number is the total of each epoch: ``steps_per_epoch=100``.
    is_bar
        The line is a progress bar.
    is_open
        The total is not known, as in ``12/?``.
    is_heading
        Nothing but a bar follows.
    is_overall
        The count goes over everything, by its name.
    is_own
        The number was found by an expression of the user's own.
    is_fraction
        The number is one of hundredths of an epoch: ``'epoch': 1.37``.
    is_qualified
        The name of a total has a word that may make it the total of a part: ``freeze_epochs=5``.
    words_after
        Words of the line behind a count with a total; empty for a bar.
    """

    template: str
    process: str = ""
    unit: Unit = Unit.UNKNOWN
    family: str = ""
    role: Role = Role.NEUTRAL
    step: int
    total: int | None = None
    is_total: bool = False
    is_lap: bool = False
    is_bar: bool = False
    is_open: bool = False
    is_heading: bool = False
    is_overall: bool = False
    is_own: bool = False
    is_fraction: bool = False
    is_qualified: bool = False
    words_after: str = ""

    @property
    def key(self) -> tuple[object, ...]:
        """Key of the series, equal for all its counts."""
        return (self.unit,) if self.is_own else (self.template, self.unit, self.total, self.is_total)

    @property
    def is_outer(self) -> bool:
        """Whether other counts begin anew when this one grows."""
        return self.unit >= Unit.EPOCH and not self.is_total


@dataclass(frozen=True, slots=True, kw_only=True)
class LineReading:
    """Counts and values of one line.

    Attributes
    ----------
    mentions
        Counts in their order.
    is_result
        The line has values, or says that something is done, so it is written after the step it counts.
    is_measured
        The line has a value with a name, such as a loss.
    """

    mentions: tuple[Mention, ...] = ()
    is_result: bool = False
    is_measured: bool = False


#: The words that count pieces of a training; forms of one word have one family.
_FAMILIES = {
    Unit.FOLD: {"fold": "fold folds cv", "chain": "chain chains"},
    Unit.ROUND: {
        "round": "round rounds durchlauf",
        "trial": "trial trials",
        "episode": "episode episodes",
        "generation": "generation generations gen",
    },
    Unit.EPOCH: {
        "ep": "ep",
        "epoch": "epoch epochs epoche epochen epoca epocas epoque epoques epok epoka epoki epoha epohi donem",
    },
    Unit.STEP: {
        "step": "step steps schritt schritte paso pasos passo passos passi sag",
        "timestep": "timestep timesteps",
        "iteration": "iter iters iteration iterations iterate it iteracion iteraciones iteracao iteracoes iterazione iteracia",
        "fit": "fits",
        "update": "update updates up upd",
        "tree": "tree trees estimators",
        "tick": "tick ticks",
        "frame": "frame frames",
    },
    Unit.BATCH: {"batch": "batch batches minibatch minibatches lote lotes batc"},
    Unit.SAMPLE: {"sample": "sample samples example examples image images img imgs sequence sequences"},
}
#: Words for a whole training of several, where the number of all stands behind: `seed 2/5`.
_TRAININGS = {"stage", "phase", "seed", "run", "repeat", "repetition", "experiment", "config", "configuration"}
#: The same where they stand before all other numbers: `Task 2/5`; not in `epoch 1/3 task 2/5`.
_TRAININGS_FIRST = {"task", "model", "member", "split", "subject", "dataset", "cycle"}
_COUNTED = {
    word: (unit, family)
    for unit, families in _FAMILIES.items()
    for family, words in families.items()
    for word in words.split()
}
_PLURALS = {word for word in _COUNTED if word.endswith("s")}
#: Behind a counted word they change nothing: `batch_idx`, `step number`.
_IDLE = {"number", "no", "nr", "idx", "index", "id", "num", "count", "i", "seen", "done", "completed", "finished"}
#: Before a counted word they say that this is how many there are.
_TOTAL = {"max", "maximum", "total", "num", "n", "number", "nb"}
#: Before a counted word they leave it the total of the whole training.
_OF_ALL = {"train", "training", "optimization", "optimizer", "opt", "global", "update", "the", "of", "for", "all"}
#: Before a counted word they change nothing.
_ENDS = {("start", "of"), ("begin", "of"), ("beginning", "of"), ("end", "of")}
#: Words between a counted word and its number that change nothing: `max_iters overwritten as 500`.
_LINKS = {"is", "are", "was", "as", "to", "set", "overwritten", "equals"}
#: Before a counted word they make it a setting, or a count of something that is not the training.
_SETTING = re.compile(
    r"accumulat(?:e|ion)|after|anneal|at|before|begin|best|between|checkpoint|consecutive|cooldown|decay|decod(?:e|ing)"
    r"|denoising|diffusion|display|drop|each|eval(?:uation)?|every|first|from|hold|inference|initial|inner|interval|is|lag|last|least"
    r"|length|local|log(?:ging)?|micro|min(?:imum)?|next|patience|per|plot|previous|print|prune|report|resum(?:e|ing)|rollout|sampling"
    r"|sav(?:e|ing)|since|skip(?:ped)?|start|stop|sub|summary|test|to|until|val(?:id(?:ation)?)?|warm(?:up)?|within"
)
#: In the name of a count they make it one of epochs without progress, or of failures.
_STOPS = re.compile(r"stop(?:ping)?|patience|improv\w*|plateau|stale|bad|attempts?|retr(?:y|ies|ying)")
#: Behind a fraction they make it one of a time, or of a memory.
_MEASURES = re.compile(
    r"\s?(?:s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?|days?|[kKMGT]i?B)(?![\w/]|\s?[=:]?\s?-?\d)"
)
#: A share of right answers, in brackets behind which their numbers stand: `Accuracy: 71.20% (42720/60000)`, `Accuracy of
#: cat: 71% (42/60)`.
_RIGHT = re.compile(
    r"(?<![A-Za-z])(?:acc|accuracy|correct|prec|precision|recall|f1|top-?\d)(?:@\d)?(?:\s(?:of|on|for)\s[^:%]{1,40}:)?\W{0,4}\d{1,9}(?:\.\d{1,9})?\s?%?\s?\($",
    re.IGNORECASE,
)
#: Of these a count of so many is none: `after batch 50 of 300`; nor of others before a counted word: `Start epoch 1/10`.
_REACHED = {"after", "at"}
_BEGUN = _REACHED | {"begin", "display", "first", "is", "last", "log", "next", "print", "report", "start", "to"}
#: A share that is called so is progress.
_DONE = {"progress", "done", "complete", "completed"}
_PROGRESS = _DONE | {"at", "epoch", "training", "train", "fit", "fitting"}
#: Beginnings of words, and words, by which something else than a training tells its progress.
_OTHER = re.compile(
    r"(?:val|eval|test|dev|map|prompts|requests)$|valid|evalua|avalia|infer|predict(?!or)|testing|sanity|(?:down|up)load|load(?:ing|ed)?$|saving|writing|cach"
    r"|tokeniz|preproc|prepar|featuriz|generating|sampl(?:ing|er)|scoring|decoding|translating|computing|extract|filter|calib|convert|export|resolv|fetch|unpack|scan|warm|shard|shuffl|buffer|init$|profil|autotun"
)
_TRAINING = re.compile(r"train(?!able)|pretrain|finetun|fit")
#: Words of an evaluation that are only the name of a log or a computer.
_NAME_ONLY = re.compile(
    r"^\W{0,3}(?:[A-Z]{4,8}:(?:test|dev)[_-][\w.-]{1,40}:|(?:test|dev)-[\w.-]{0,40}\d[:\]])\s?(?=[A-Za-z])"
    r"|(?<![A-Za-z])(?:test|dev)(?=\].*\b[Tt]rain(?:ing)?(?:\W{1,4}[Ee]poch)?[^A-Za-z]*$)"
)
#: Words for sampling that is the training itself.
_CHAINS = {"chain", "chains", "draw", "draws"}
#: A count that is called by an activity (`Tokenizing`, `Compiling layer 3/48`) is of that activity, but for these.
_TRAINING_GERUNDS = re.compile(
    r"(?:pre)?training|(?:fine)?tuning|fitting|learning|running|processing|boosting|optimi[sz]ing|minimizing|iterating|updating"
    r"|evolving|remaining|warning|logging|during|starting|beginning|finishing|working|doing"
)
_OVERALL = {"all", "overall", "total"}
#: Units in which data is moved, not trained on.
_BYTES = re.compile(r"[kKMGT]?i?B(?:ytes)?/s|[kKMG]?bytes/s")
#: A part of the settings that is not of the whole training: `linesearch.max_iterations`.
_PART_OF = re.compile(
    r"\b(?!(?i:cfg|conf|args|hparams|hyp|solver|train|trainer|training)\w*\.)[A-Za-z_]{2,32}\.\w+\W{0,4}$"
)
#: Of these there are many in the data, and a count of them is mostly made before the training.
_DATA = {"files", "documents", "docs", "rows", "records", "lines", "shards", "chunks", "articles", "videos", "pages"}
_EXAMPLES = re.compile(r"[ \d](?:examples|files|tokens)/s")

#: Between thousands, besides the underscore.
_COMMA = "[,'\u2019\u00a0\u202f]"
_INT = rf"(?:\d{{1,3}}(?:{_COMMA}\d{{3}}){{1,6}}(?!{_COMMA}?\d)|\d{{1,3}}(?:_\d{{3}}){{1,6}}(?!\d)|\d{{1,18}}(?!\d))"
#: All characters between thousands.
SEPARATOR = re.compile(rf"{_COMMA}|_")
_SCALED = r"\d{1,6}(?:\.\d{1,3})?[kKMGT]"
#: A number does not begin in the middle of a word, of a path or of another number; but right behind what it counts.
_BEGIN = r"(?:(?<![\w/.])|(?<=[Ss]tep)|(?<=[Ee]poch)|(?<=[Ii]ter)|(?<=[Ff]old)|(?<=[Ff]old_))"
#: Nor behind a letter that stands for what it counts, unless a total follows: `E01/04 B020/100`.
_LETTERS = {
    "e": (Unit.EPOCH, "epoch"),
    "b": (Unit.BATCH, "batch"),
    "s": (Unit.STEP, "step"),
    "i": (Unit.STEP, "iteration"),
}
_BEGIN_PAIR = rf"(?:{_BEGIN}|(?<=[\s\[(|,;:][EeBbSsIi])|(?<=^[EeBbSsIi])|(?<=\b[Ee]p)|(?<=\b[Ee]p\.)|(?<=\b[Ii]t)|(?<=\b[Bb]atch))"
#: Dates, times, versions and addresses.
_STAMP = r"""\d{4}[-/.]\d{1,2}[-/.]\d{1,2} | \d\d[-/]\d\d[-/]\d\d(?=[ T]\d) | (?<!\d)(?:0?[1-9]|1[0-2])/(?:0?[1-9]|[12]\d|3[01])(?:/\d{2,4})?(?=[ T]\d\d:\d\d:\d\d(?![<\d]))
        | \d{1,9}:\d\d(?::\d\d)?(?:[.,]\d{1,9})?(?!\d) | \d{1,9}(?:\.\d{1,9}){2,8}(?::\d{1,5}(?!\d))? | (?:(?<!\S)\d{1,8}[ ][\w-]{1,40})?\.[A-Za-z]\w{0,4}:(?:\d+|[ ]{1,3}\d+(?=[:\]]))"""
_STAMPS = re.compile(rf"(?:(?=\d)(?<!\d)|(?=\.))(?: {_STAMP} )", re.VERBOSE)
#: `[1 | 164]` is one of 164.
_PIPED = re.compile(r"(\[\d{1,9} )\|( \d{1,9}\])")
#: `done (%): 3.3` is 3.3 %.
_UNIT_BEFORE = re.compile(r"\(%\): (\d{1,3}(?:\.\d{1,3})?)(?![\w.])")
#: Where in a program a line was written, as loguru says it: `__main__:train_epoch:88 - `. `INFO:root:epoch:3` is another's.
_CALLER = re.compile(r"(?<![^\s\[(|])(?![A-Z]{1,9}:)[\w.<>]{1,80}:[\w<>]{1,80}:\d{1,6}(?=\s{1,4}-\s|\s{0,4}[|\]])")
#: Accented, Cyrillic and Greek letters, and below them the letters that they are read as: `Época`, `Эпоха`.
_LETTERS_AS = (
    "áàâãäåéèêëíìîïóòôõöúùûüýçñабвгдеёжзийклмнопрстуфхцчшщъыьэюяαάβγδεέζηήθιίκλμνξοόπρσςτυύφχψωώ",
    "aaaaaaeeeeiiiiooooouuuuycnabvgdeezzijklmnoprstufhccssxyxeuaaabgdeezhhtiiklmnxooprsstuufcyww",
)
_PLAIN = str.maketrans(*(letters + letters.upper() for letters in _LETTERS_AS))
#: Letters of scripts that put no blank between a word and a number.
_UNSPACED = re.compile("[\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7af]")
#: Words between a count and its total, in some languages.
_OF = "(?i:of|von|van|de|di|sur|av|af|od|z|iz|apo)"
_DONE_WORD = "(?:done|complete|completed|finished|processed|seen|trained)"
_PLURAL = "|".join(sorted(_PLURALS))
#: A number in a line whose stamps are blanked. `100 updates of 20 steps` are two.
_NUMBER = re.compile(
    rf"""
    (?=[\d.])(?: {_BEGIN_PAIR}(?<!\w-)(?P<step> {_SCALED} | {_INT} )
        (?: it/ | (?:\s(?P<of>[A-Za-z]{{1,16}})\s)?\s{{0,16}}/\s{{0,16}} | \s{{1,16}}(?:(?P<between>[A-Za-z]{{1,16}})\s|\()?(?:{_DONE_WORD}\s)?(?:out\s)?(?:{_OF})\s{{1,16}}(?:at\smost\s)? )
        (?P<total> {_SCALED} | {_INT} | \?(?!\w) | Unknown | -(?!\w) ) (?: (?=epoch|step|it|batch) | (?![\w/]|\.\d) )
        (?(between)(?! \s(?:\w{{1,16}}\s)?(?!(?P=between)\b)(?:{_PLURAL})\b ))
    | {_BEGIN}(?P<open> {_SCALED} | {_INT} ) [ ]?[A-Za-z]{{1,12}} (?=[ ]\[[ ]{{4}})
    | (?<![\w.])(?P<percent> \d{{1,3}}(?:\.\d{{1,3}})? ) \s?%
    | (?P<real> (?:\d{{1,3}}(?:,\d{{3}}){{1,9}} | \d{{1,30}})\.\d+(?:[eE][-+]?\d+)? | \d{{1,30}}\.(?=[\]),}}]) | \d{{1,30}}[eE][-+]?\d+ | (?<![A-Za-z])\.\d+ )
    | {_BEGIN}(?<!-)(?P<whole> {_SCALED} | {_INT} ) (?![\w/]|[.:]\d)
    | \d+ )
    """,
    re.VERBOSE,
)
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_NAME = re.compile(r"[A-Za-z]+(?:['\"]?[ _-]{1,2}[A-Za-z]+){0,3}$")
#: The name of a writer at the beginning of its lines, without a number that stands alone: `[rank0]: `, `trainer-1  | `.
_LABEL = re.compile(r"^(?:\D|(?<=[\w-])\d){0,100}?[A-Za-z][^\s\d]{0,40}\d{0,6}(?:[:)]|\s{0,100}\]|\s{1,8}\|)\s")
#: Characters before a count without a name, in one of the first columns of a table.
_ROW, _N_COLUMNS = " \t[]<>|#:,%0123456789", 2
#: A name right before a number: no share and no bar are between.
_NAMED = re.compile(r"[A-Za-z][\s:=(\[]{0,4}$")
#: Characters between a name and its number.
_BETWEEN = " \t:=#[](){}\"'|>.*~%-"
_PART = re.compile(r"\([a-z]{2,12}\)[^A-Za-z0-9]*$")
#: What a heading counts, and tells again with its total: `Epoch 3 (3/20):`.
_COUNT_TOLD = re.compile(r"(?<!\d)(\d{1,9})\s?\($")
_COUNT_BEFORE = re.compile(r"(?<!\d)\d{1,18}\s?[(\[]\s{0,3}$")
#: A share behind a count without a name, as in `(5 6%)`.
_COUNT_BESIDE = re.compile(r"[(\[]\s?\d+\s$")
_UNIT_AFTER = re.compile(r"\s{0,3}([A-Za-z]{2,12})\b")
_VALUE_AFTER = re.compile(r"[\s:=#(\[]{0,4}\d")
#: A value right behind a number, as in `loss at step 20: 0.3`, or values in the lines below.
_MEASURED_AT = re.compile(r"\D{1,24}\d+\.\d|:\s*$")
#: A value with its name right behind a number, as in `3 train loss: 0.3`.
_VALUE_NEXT = re.compile(r"\s{1,4}(?:[A-Za-z_]{2,16}\s){0,2}[A-Za-z_]{2,16}\s?[:=]\s{0,8}-?\d+\.\d")
#: A row that begins with a word, as in `Train 3, loss: 0.3`.
_TRAIN_ROW, _VALUE_NAME = re.compile(r"\s*train(?:ing)?[\s:]{1,3}", re.IGNORECASE), re.compile(r"\W{1,4}[A-Za-z]{3}")
#: A count within something, by its name: `step_in_epoch`.
_WITHIN = re.compile(r"([A-Za-z]{1,16})_in_[A-Za-z]{1,16}$")
#: A bar whose name has a fraction before it: `1/5 * Epoch: 32%|###  | 50/156`.
_NAMED_BAR = re.compile(r"\d/\d.{1,100}\d%\s?\|")
_OF_EPOCH = re.compile(r"\s(?:of|in)\s(?:the\s)?epoch", re.IGNORECASE)
_EPOCH_NEXT = re.compile(r"\W{1,4}epoch\W", re.IGNORECASE)
#: So many are still to be done: `30/100 left`.
_LEFT = re.compile(rf"\s{{0,3}}(?:(?:{_PLURAL})\s)?(?:left|remaining|to go)\b")
#: A word before the name of what is counted that stands for all of it: `100 optimization steps`.
_KIND = re.compile(rf"(\s)(?:train(?:ing)?|optimi[sz](?:ation|er)|gradient|global)\s(?=(?:{_PLURAL})\b)")
#: Words before a number that counts the parts of each: `10 epochs of 50 steps`.
_OF_THOSE = re.compile(rf"\b({_PLURAL})\sof\s$", re.IGNORECASE)
#: So many were done: `120 steps done`.
_REACHED_AFTER = re.compile(rf"\s{{0,3}}\w+\s(?:are\s|were\s)?{_DONE_WORD}\b")
#: So many are in each part of something.
_EACH = re.compile(r"\s{0,3}\w+(?:/|\s(?:each|per|in each|an?)\b)")
_SHARE = re.compile(r"\d+%\s?\|?")
_DRAWING = re.compile(r"\|?[█▉▊▋▌▍▎▏━─╸╺▇▆▅▄▃▂▁#=>.\s-]{3,}\|?|\|\s*\|")
_BAR = re.compile(r"\d%\s?[|─]|[█▉▊▋▌▍▎▏━╸╺]|#{3}|={3}|>{4}|\[\d+:\d\d[<,]|\[-{4}")
_DRAWN = re.compile(r"[█▉▊▋▌▍▎▏━╸╺]|%\s?─|#{2}|={2}>?|[#=]-{2}|\[-{3}|\[\.{3}")
_HEADING = re.compile(r"\s*(?:$|[|█━╸╺])")
_RESULT = re.compile(r"\d\.\d|\d[eE]-\d|\b(?:done|finished|completed|took|end[ _-]of)\b", re.IGNORECASE)
_NAMED_VALUE = re.compile(
    r"(?<![A-Za-z_])(?!(?:in|took|time|eta|elapsed|after)\b)[A-Za-z_]{2,32}\d?(?:['\"]|['\"]?\s{0,2}[:=]|\s)\s{0,2}['\"]?-?\d+\.\d"
    r"(?!\d*(?:\.\d|-[a-z]{2}))"  # `python:3.11-slim` is a version
)
#: A value that is known before a step is made.
_RATE = re.compile(r"\b(?:lr|learning[ _]rates?)(?:\W{1,4}(?:is |to |of )?)\d[\d.e+-]*", re.IGNORECASE)
_EPOCH_FRAC = re.compile(r"\bepoch['\"]?\s?[:=]\s?['\"]?(\d{1,6}\.\d{1,9})", re.IGNORECASE)
#: Settings in one line, where a count is a total: `Namespace(epoch=100, lr=0.1)`, `{'batch_size': 64, 'epoch': 100}`.
_SETTINGS = re.compile(
    r"\b(?:Namespace|\w*(?:Args|Arguments|Config|Params))\((?=\w+=)"
    r"|\{(?=[^{}]{0,999}\b(?i:batch_?size)['\"]?: )(?![^{}]{0,999}(?:loss|acc))"
)
_FILE = re.compile(r"[A-Za-z_~]/|/[A-Za-z_~]|\.[A-Za-z]\w{0,9}\W{0,2}$")
_CHUNK_BEFORE, _CHUNK_AFTER = re.compile(r"\S*$"), re.compile(r"\S*")
#: A measured value with its name, which says nothing of whose progress a line tells.
_MEASURED = re.compile(r"(?<![\w./-])[\w./-]{1,40}['\"]?\s?[:=]\s{0,8}['\"]?[-+]?\d[\d.,eE+-]*")
_VALUE = re.compile(r"(?:\d[\d.]*|\?)(?:s/\w{1,12}|\w{1,12}/s)|[-+]?\d[\d.,:]*(?:e[-+]?\d+)?|\?|\bnan\b|\binf\b")
#: A process names itself before what it writes; its number tells counts apart.
_PROCESS = re.compile(r"(rank|default|worker|gpu|pid|proc|process|node|device|cuda)(\W{0,3})(\d+)", re.IGNORECASE)
_AS_LETTERS = str.maketrans("0123456789", "abcdefghij")
_TO_TRAIN = re.compile(
    r"tr[ae]in|fit|start|max|total|schedul|run|perform|entren|entrain|obuc|^\W{0,3}budget", re.IGNORECASE
)
#: Ends of a clause: `for 200 epochs (patience 10)`, `for 200 epochs with early stopping`.
_CLAUSE_END = re.compile(r"[(,;]|\bwith\b")
_SENTENCE_END = re.compile(r";|(?<=\d)\.\s")
_TO_STOP = re.compile(r"improve|patience|early|every|until|warm", re.IGNORECASE)

#: The families of shares of a hundred, and of parts of an epoch; of these there are so many.
SHARE, EPOCH_FRACTION, PER_EPOCH = "percent", "hundredths of an epoch", 100
#: Numbers of one line that are looked at, and counts; characters around one that are.
_N_NUMBERS_MAX, _N_MENTIONS_MAX, _AROUND = 200, 12, 200
_TEMPLATE_MAX = 80
_SCALES = {"k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


def read_line(text: str, *, is_complete: bool = True) -> LineReading:
    """Return the counts of a line. The last number of an incomplete one may be cut off, and is left out."""
    mentions: list[Mention] = []
    text = text if text.isascii() else text.translate(_PLAIN)
    is_bar, is_drawn = _BAR.search(text) is not None, _DRAWN.search(text) is not None
    i_number = -1
    values = _UNSPACED.sub(
        " ", _CALLER.sub(_blank, _STAMPS.sub(_blank, _UNIT_BEFORE.sub(r"    \1%", _PIPED.sub(r"\1/\2", text))))
    )
    label = _LABEL.match(values)
    label_end = label.end() if label else 0
    for match in islice(_NUMBER.finditer(values), _N_NUMBERS_MAX):
        kind = match.lastgroup
        if kind is None or (not is_complete and match.end() >= len(text)):
            continue
        i_number += match.start() >= label_end
        if kind == "real" or _is_in_file_name(text, match):
            continue
        place = _NumberPosition(text, match, is_bar=is_bar, is_drawn=is_drawn)
        mention = place.read(kind, i_number)
        if mention is not None:
            mentions.append(mention)
            if len(mentions) == _N_MENTIONS_MAX:
                break
    if mentions and _SETTINGS.search(values):
        mentions = [_as_setting(mention) for mention in mentions]
    epoch_frac = _EPOCH_FRAC.search(values) if is_complete else None
    if epoch_frac is not None:
        mentions.append(_fraction_of_epochs(epoch_frac[1]))
    if not mentions:
        return LineReading()
    results = _RATE.sub(" ", values)
    return LineReading(
        mentions=tuple(_ordered(mentions)),
        is_result=_RESULT.search(results) is not None,
        is_measured=_NAMED_VALUE.search(results) is not None,
    )


def _blank(stamp: re.Match[str]) -> str:
    """Return blanks in place of a stamp; a count may look like a date, as in `Epoch 3/12 10:00:00`."""
    before = stamp.string[max(0, stamp.start() - _AROUND) : stamp.start()]
    is_count = stamp[0].count("/") == 1 and _counted(_name_before(before))[0] is not Unit.UNKNOWN
    return stamp[0] if is_count else " " * len(stamp[0])


def _as_setting(mention: Mention) -> Mention:
    """Return a number among printed settings as a total, though its name is that of a count elsewhere."""
    is_count = mention.total is None and not (mention.is_open or mention.is_total or mention.is_qualified)
    if is_count and mention.unit in {Unit.STEP, Unit.EPOCH}:
        return replace(mention, is_total=True, is_qualified=True)  # `epoch=50, n_epochs=200`: it may be the first one
    return mention


def _fraction_of_epochs(number: str) -> Mention:
    return Mention(
        template="", unit=Unit.STEP, family=EPOCH_FRACTION, step=int(PER_EPOCH * float(number)), is_fraction=True
    )


def _ordered(mentions: list[Mention]) -> list[Mention]:
    """Return the counts of a line, each read by the others beside it."""
    counts = [m for m in mentions if m.family != SHARE and (m.total is not None or m.is_open)]
    # The share beside a count says the same less exactly, unless it is one of an epoch.
    mentions = [m for m in mentions if m.family != SHARE or all(_is_of_epoch(m, count) for count in counts)]
    with_total = {
        (mention.family, mention.step) for mention in mentions if mention.family and mention.total is not None
    }
    mentions = [mention for mention in mentions if mention.total or (mention.family, mention.step) not in with_total]
    for i, mention in enumerate(mentions):
        if mention.unit >= Unit.EPOCH and any(later.total is not None or later.is_open for later in mentions[i + 1 :]):
            mentions[i] = replace(mention, is_bar=False)  # it only names the bar
    nameless = [mention for mention in mentions if mention.unit is Unit.UNKNOWN and mention.total is not None]
    if len(nameless) == 2 and not any(mention.is_outer for mention in mentions):
        # `[0/5][50/156]`: the first of two fractions without a name is of the epochs.
        outer = replace(nameless[0], unit=Unit.EPOCH, family="epoch", is_bar=False)
        mentions = [outer if mention is nameless[0] else mention for mention in mentions]
    return mentions


def _is_of_epoch(share: Mention, count: Mention) -> bool:
    """Return whether a share tells how much of the counted epoch is done: `epoch 1/9: 40% done`, `epoch 1/9 [##--] 40%`."""
    if count.unit < Unit.EPOCH or not count.total:
        return False
    if share.is_bar:
        return abs(100 * count.step / count.total - share.step) > 1
    words = {*share.words_after.split()[:1], *re.findall(r"[a-z]+", share.template)[-1:]}
    return not words.isdisjoint(_DONE)


class _NumberPosition:
    """A number in its line."""

    def __init__(self, text: str, match: re.Match[str], *, is_bar: bool, is_drawn: bool) -> None:
        self._match, self._is_bar, self._is_drawn = match, is_bar, is_drawn
        self._before = text[max(0, match.start() - _AROUND) : match.start()]
        after = text[match.end() : match.end() + _AROUND]
        self._after = _KIND.sub(r"\1", after, count=1) if _KIND.match(after) else after
        self._name = _name_before(self._before)

    def read(self, kind: str, i_number: int) -> Mention | None:
        """Return the number as a count; None if it is no count."""
        if kind == "total":
            return self._pair(i_number)
        if kind == "open":
            return self._mention(_number(self._match["open"]), is_open=True)
        if kind == "percent":
            return self._percentage(i_number)
        return self._single(i_number)

    def _pair(self, i_number: int) -> Mention | None:
        total = self._match["total"]
        unit, family = self._counted_of_total()
        if (
            unit is Unit.UNKNOWN
            and any(map(_NO_COUNTS.fullmatch, self._name[-1:]))
            and (not self._is_bar or _NAMED.search(self._before))
        ):
            return None
        plain = _REACHED if unit is Unit.UNKNOWN else _BEGUN
        if any(_SETTING.fullmatch(word) and word not in plain for word in self._name[:-1]):
            return None
        if any(map(_STOPS.fullmatch, self._name)) or _LEFT.match(self._after):
            return None
        if unit is Unit.UNKNOWN and (_MEASURES.match(self._after) or _RIGHT.search(self._before)):
            return None
        # `740 correct out of 1000`, `740/1000 correct`
        if unit is Unit.UNKNOWN and any(map(_VALUES.fullmatch, self._words_around_total())):
            return None
        trainings = _TRAININGS | _TRAININGS_FIRST if i_number <= 0 else _TRAININGS
        if unit is Unit.UNKNOWN and trainings & {*self._name[-1:]}:
            unit, family = Unit.FOLD, self._name[-1]
        if unit is Unit.EPOCH and _NAMED_BAR.search(self._before):
            unit, family = Unit.UNKNOWN, ""
        if unit is Unit.STEP and _OF_EPOCH.match(self._after):
            unit = Unit.BATCH
        n_total = None if total in {"?", "Unknown", "-"} else _number(total)
        return self._mention(_number(self._match["step"]), n_total, unit, family, is_open=n_total is None)

    def _counted_of_total(self) -> tuple[Unit, str]:
        """Return what is counted where a total follows: by the name, by other words around, or by a letter."""
        unit, family = self._counted()
        if unit is Unit.UNKNOWN:
            words = [*self._words_around_total(), *(self._name[::-1] if self._is_bar else [])]
            known = [_COUNTED[word] for word in words if word in _COUNTED]
            unit, family = known[0] if known else (unit, family)
        if unit is Unit.UNKNOWN and self._before[-1:].isalpha():
            unit, family = _LETTERS.get(self._before[-1].lower(), (unit, family))
        told = None if self._after.strip("): ") else _COUNT_TOLD.search(self._before)
        is_told = unit is Unit.UNKNOWN and told is not None and told[1] == self._match["step"]
        return _counted(_name_before(self._before[: told.start()])) if told and is_told else (unit, family)

    def _words_around_total(self) -> list[str]:
        """Return the words between a count and its total, and right behind the total."""
        words = (self._match["of"], self._match["between"], self._word_after())
        return [word.lower() for word in words if word]

    def _percentage(self, i_number: int) -> Mention | None:
        after = _UNIT_AFTER.match(self._after.lstrip(_BETWEEN))
        words = {*self._name[-1:], after[1].lower() if after else ""}
        is_value = self._before.endswith("=") and not words & _DONE
        is_known = bool(words & _PROGRESS and not is_value) or self._is_drawn or self._is_beside_count()
        if not is_known and not (i_number == 0 and self._is_before_value()):
            return None
        return self._mention(int(float(self._match["percent"])), 100, family=SHARE)

    def _is_before_value(self) -> bool:
        """Return whether a share stands in front of a value, as in `[12%] loss=0.3`."""
        return not _without_label(self._before).strip(_ROW) and _NAMED_VALUE.search(self._after) is not None

    def _is_beside_count(self) -> bool:
        """Whether a share stands in brackets behind a count, as in `iter 300 (12%)`; an epoch's is its own share."""
        if _COUNT_BESIDE.search(self._before):
            return True
        behind = _COUNT_BEFORE.search(self._before)
        return (
            behind is not None and Unit.UNKNOWN < _counted(_name_before(self._before[: behind.start()]))[0] < Unit.EPOCH
        )

    def _single(self, i_number: int) -> Mention | None:
        step, name = _number(self._match["whole"]), self._name
        unit, family = self._counted()
        if unit is Unit.UNKNOWN and self._match["whole"][-1].isalpha():
            return None  # a size
        if name[-2:] == ["per", "epoch"]:
            unit, family = _counted(name[:-2])
            return None if unit is Unit.UNKNOWN else self._mention(step, None, unit, family, is_total=True, is_lap=True)
        if unit is not Unit.UNKNOWN:
            words = _without_idle(name)
            settings = [word for word in words[:-1] if _SETTING.fullmatch(word) or _STOPS.fullmatch(word)]
            is_measured_at = settings in (["at"], ["after"]) and _MEASURED_AT.match(self._after)
            # `Training until step 100`
            is_goal = settings == words[-2:-1] and settings in (["until"], ["to"]) and _is_training(words[-3:-2])
            if (settings and not is_measured_at and not is_goal) or any(map(_VALUES.fullmatch, words[-2:-1])):
                return None
            is_named_total = is_goal or bool(set(words[:-1]) & _TOTAL)
            part = _PART_OF.search(self._before)
            is_qualified = not (is_named_total or _OF_ALL.issuperset(words[:-1])) or part is not None
            is_total = is_named_total or words[-1] in _PLURALS
            return self._mention(step, None, unit, family, is_total=is_total, is_qualified=is_qualified)
        if name == ["run"] and _EPOCH_NEXT.match(self._after):
            return self._mention(step, None, Unit.FOLD, "run")
        if name == ["runs"] and self._before[-1] in "=:":
            return self._mention(step, None, Unit.FOLD, "run", is_total=True)
        word = self._word_after()
        if name == ["total"] and word not in _PLURALS and not self._before.rstrip(_BETWEEN).endswith("/total"):
            return self._mention(step, None, unit, family, is_total=True)
        if word in _PLURALS and (mention := self._counted_behind(step, word)) is not None:
            return mention
        is_train_row = _TRAIN_ROW.fullmatch(self._before) and _VALUE_NAME.match(self._after)
        row = "" if is_train_row else _without_label(self._before)
        is_of_unit = _UNIT_AFTER.match(self._after) and not _VALUE_NEXT.match(self._after)
        # A number of ten digits is an instant, in seconds since 1970.
        is_in_row = not is_of_unit and i_number < _N_COLUMNS and step < 10**9 and not row.strip(_ROW)
        return self._mention(step) if is_in_row and _RESULT.search(self._after) else None

    def _counted_behind(self, step: int, word: str) -> Mention | None:
        """Return the number as a total, or a count, of what the `word` behind it names; None if it is neither."""
        unit, family = _COUNTED[word]
        is_to_stop = _TO_STOP.search(self._before + _CLAUSE_END.split(self._after, 1)[0])
        if _TO_TRAIN.search(self._before) and not _EACH.match(self._after) and not is_to_stop:
            around = _OF_THOSE.search(self._before)
            is_part = around is not None and _COUNTED[around[1].lower()][0] is not Unit.EPOCH
            return (
                None if is_part else self._mention(step, None, unit, family, is_total=True, is_lap=around is not None)
            )
        is_reached = _REACHED_AFTER.match(self._after) or _without_label(self._before).split() == ["After"]
        return self._mention(step, None, unit, family) if is_reached else None

    def _counted(self) -> tuple[Unit, str]:
        """Return what is counted, by the name."""
        unit, family = _counted(self._name)
        within = _WITHIN.search(self._before.rstrip(_BETWEEN))
        if within is not None and (known := _COUNTED.get(within[1].lower())) is not None:
            return Unit.BATCH, known[1]
        return unit, family

    def _word_after(self) -> str:
        """Return the word right after the number, unless it names the number that follows."""
        after = _UNIT_AFTER.match(self._after)
        if after is None:
            return ""
        word = after[1].lower()
        return word if word in _PLURALS or not _VALUE_AFTER.match(self._after, after.end()) else ""

    def _mention(
        self, step: int, total: int | None = None, unit: Unit = Unit.UNKNOWN, family: str = "", **flags: bool
    ) -> Mention:
        """Return the number as a count with these properties; `flags`: see `Mention`."""
        before = _SHARE.sub(" ", self._before)
        template = _template(before)
        if unit is Unit.UNKNOWN and total is None and not flags.get("is_open"):
            template += self._after.lstrip()[:1].translate(_DIGIT)  # rows of a table, and rows of another
        return Mention(
            template=template,
            process=" ".join(match[3] for match in _PROCESS.finditer(before)),
            unit=unit,
            family=family,
            role=self._role(before),
            step=step,
            total=total,
            is_bar=self._is_bar,
            is_overall=self._is_bar and bool(_OVERALL & set(self._name)),
            is_heading=_HEADING.match(self._after) is not None,
            words_after="" if total is None or self._is_bar else " ".join(_WORD.findall(self._after)).lower(),
            **flags,
        )

    def _role(self, before: str) -> Role:
        clause = _SENTENCE_END.split(before)[-1]
        words = [word.lower() for word in _WORD.findall(_MEASURED.sub(" ", _NAME_ONLY.sub(" ", clause)))]
        if _CHAINS & {*words}:
            return Role.NEUTRAL
        if any(map(_OTHER.match, words)):
            return Role.OTHER
        if self._word_after() in _DATA or (
            self._is_bar and (_BYTES.search(self._after) or self._is_of_examples(words))
        ):
            return Role.OTHER
        is_nameless = self._match.lastgroup == "total" and self._counted()[0] is Unit.UNKNOWN
        title = words[:1] if self._is_bar else self._name if is_nameless else []
        if any(word.endswith("ing") and not _TRAINING_GERUNDS.fullmatch(word) for word in title):
            return Role.OTHER
        return Role.TRAINING if _is_training(words) else Role.NEUTRAL

    def _is_of_examples(self, words: list[str]) -> bool:
        return bool(_EXAMPLES.search(self._after)) and not _is_training(words)


#: Names of values, which count nothing: `loss_step=3`.
_VALUES = re.compile(
    r"acc(?:uracy)?|score|correct|precision|recall|mem(?:ory)?|lr|loss|reward|wins?|hits|success|solved"
)
#: These and names of processes may be written as fractions.
_NO_COUNTS = re.compile(rf"{_VALUES.pattern}|date|rank|node|worker|process|replica|device|[gc]pu|cores?")
_DIGIT = str.maketrans("123456789", "000000000")


def _name_before(before: str) -> list[str]:
    """Return the words right before a number, its name."""
    text = _DRAWING.sub(" ", _SHARE.sub(" ", before[-_TEMPLATE_MAX:]))
    text = _PART.sub("", text).rstrip(_BETWEEN)
    name = _NAME.search(text)
    words = [word.lower() for word in _WORD.findall(name[0])] if name else []
    while len(words) > 1 and words[-1] in _LINKS:
        words.pop()
    if tuple(words[-3:-1]) in _ENDS:
        del words[-3:-1]
    return words


def _without_label(before: str) -> str:
    return _LABEL.sub("", _STAMPS.sub(" ", before))


def _without_idle(words: list[str]) -> list[str]:
    return words[:-1] if len(words) > 1 and words[-1] in _IDLE else words


def _counted(name: list[str]) -> tuple[Unit, str]:
    words = _without_idle(name)
    unit, family = _COUNTED.get(words[-1], (Unit.UNKNOWN, "")) if words else (Unit.UNKNOWN, "")
    is_of_all = family == "timestep" and bool({"max", "maximum", "total"} & {*words})
    return unit, "step" if is_of_all else family


def _is_training(words: list[str]) -> bool:
    return any(map(_TRAINING.match, words))


def _template(before: str) -> str:
    text = _PROCESS.sub(lambda match: match[1] + match[2] + match[3].translate(_AS_LETTERS), before)
    text = _VALUE.sub("#", _DRAWING.sub(" ", text).lower())
    return " ".join(text.split())[-_TEMPLATE_MAX:]


def _is_in_file_name(text: str, match: re.Match[str]) -> bool:
    """Return whether a number is part of a path or a file's name; a fraction is not."""
    if match.lastgroup == "total":
        return False
    before = _CHUNK_BEFORE.search(text, max(0, match.start() - _AROUND), match.start())
    after = _CHUNK_AFTER.match(text, match.end(), match.end() + _AROUND)
    return _FILE.search(f"{before[0] if before else ''}{match[0]}{after[0] if after else ''}") is not None


def _number(digits: str) -> int:
    scale = _SCALES.get(digits[-1].replace("K", "k"), 1)
    plain = SEPARATOR.sub("", digits.rstrip("kKMGT"))
    return round(float(plain) * scale) if "." in plain else int(plain) * scale
