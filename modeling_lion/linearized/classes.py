# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Classes of linearized models, made on demand from the classes of transformers: `LionBertConfig` (`model_type`
"lion-bert"), `LionBertModel`, `LionBertForMaskedLM`, … Their own model type prevents other programs from loading the
weights as softmax by mistake. A model of several parts also gets such a class if some of its parts are linear.
"""

from importlib import import_module
from inspect import currentframe

import torch
import transformers
from huggingface_hub.dataclasses import strict
from torch import nn
from transformers import AutoConfig, PreTrainedConfig, PreTrainedModel
from transformers.conversion_mapping import get_checkpoint_conversion_mapping, register_checkpoint_conversion_mapping
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.feature_extraction_auto import FEATURE_EXTRACTOR_MAPPING
from transformers.models.auto.image_processing_auto import IMAGE_PROCESSOR_MAPPING, IMAGE_PROCESSOR_MAPPING_NAMES
from transformers.models.auto.processing_auto import PROCESSOR_MAPPING
from transformers.models.auto.tokenization_auto import TOKENIZER_MAPPING

from ..attention.numerics import accumulation_dtype
from ..pretrained import CheckedLoading
from ..private_apis import model_mappings, register_recorded_outputs, replace_registered_configs
from .attention_functions import LINEARIZED_FORMS
from .branch import KeptAttention, LinearBranch
from .config import PREFIX, LinearizedConfig, parts_of
from .model_inputs import make_positions_cyclic, with_tokens


BRANCH = ".lion."  # in the names of weights


class LinearizedModel(CheckedLoading, PreTrainedModel):
    """The base class of linearized models; each also inherits from its class of transformers."""

    def __init__(self, config: PreTrainedConfig, *inputs, **kwargs):
        form = config._attn_implementation
        if config.lion_layers is None:  # a model of several parts, whose configurations say which are linear
            config._attn_implementation = None if form in LINEARIZED_FORMS else form
        # Parts without a choice of the caller become "lion"; transformers would choose softmax for them.
        for part, name in [(part, part._attn_implementation) for part in parts_of(config)]:
            part._attn_implementation = name if config.lion_layers is None else name or "lion"
        super().__init__(config, *inputs, **kwargs)
        if config.lion_layers is None:
            parts = [x for x in models_inside(self).values() if getattr(x.config, "lion_layers", None) is not None]
            for part in parts:
                become_linear(part, form or "lion")
            if not parts:
                raise ValueError(f"`lion_layers` is None, and no part of this {type(self).__name__} is linear.")
        install_branches(self)
        self.post_init()

    def check_loaded_weights(self, name: str, unexpected: list[str], missing: list[str]) -> None:
        check_branch_weights(name, self, unexpected, missing)

    def get_correct_attn_implementation(self, requested_attention: str | None, is_init_check: bool = False) -> str:
        if self.config.lion_layers is not None:
            requested_attention = requested_attention or "lion"
        if requested_attention in LINEARIZED_FORMS:
            return requested_attention
        return super().get_correct_attn_implementation(requested_attention, is_init_check)

    def set_attn_implementation(self, attn_implementation: str | dict, allow_all_kernels: bool = False) -> None:
        """`PreTrainedModel.set_attn_implementation`. Forms of LION apply to the linear parts of a model."""
        if self.config.lion_layers is not None or attn_implementation not in tuple(LINEARIZED_FORMS):
            super().set_attn_implementation(attn_implementation, allow_all_kernels)
            return
        linear = (x for x in models_inside(self).values() if isinstance(x, LinearizedModel))
        for part in linear:
            part.set_attn_implementation(attn_implementation)

    def state_dict(self, *args, prefix: str = "", **kwargs):
        """`nn.Module.state_dict`. Raises a ValueError if `save_pretrained` saves a whole without this linear part."""
        if prefix:
            check_whole(self, prefix[:-1])
        return super().state_dict(*args, prefix=prefix, **kwargs)

    def __reduce_ex__(self, protocol):
        made, arguments, *state = super().__reduce_ex__(protocol)
        if type(self) is not MODEL_CLASSES.get(self.source_class):
            return made, arguments, *state
        return empty_model, (self.source_class,), *state  # pickle may not find the class by its name

    def initialize_weights(self):
        # Parts of a model have transformers' classes, which do not initialise a branch. Loaded weights stay.
        super().initialize_weights()
        for module in self.modules():
            if isinstance(module, LinearBranch):
                module.start()


def check_branch_weights(name: str, model: nn.Module, unexpected: list[str], missing: list[str]) -> None:
    """
    Raise a ValueError if some weights of a branch, but not all, are missing or others than this model has: trained
    ones would be dropped, or new ones start untrained, without an error.
    """
    branches = {f".{x.partition(BRANCH)[0]}" for x in model.state_dict() if BRANCH in x and x not in missing}
    others = [
        x
        for x in (*unexpected, *missing)  # with the name of a model around this one, perhaps
        if BRANCH in x and f".{x.partition(BRANCH)[0]}".endswith(tuple(branches))
    ]
    if others:
        raise ValueError(
            f"The weights in {name} are of another `lion_mixer` than {model.config.lion_mixer!r}, `lion_feature_map` "
            f"than {model.config.lion_feature_map!r} or `lion_window` than {model.config.lion_window}: they differ in "
            f"{', '.join(sorted(others)[:3])}{', …' if len(others) > 3 else ''}. Load them with the configuration "
            "that they were saved with."
        )


def empty_model(source_class: type[PreTrainedModel]) -> LinearizedModel:
    """A model without a state, for pickle and copies."""
    model_class = linearized_model_class(source_class)
    return model_class.__new__(model_class)


def models_inside(model: PreTrainedModel) -> dict[str, PreTrainedModel]:
    """The models inside a model, by name, whose configuration differs from those of the models around them."""
    found = {name: x for name, x in model.named_modules() if isinstance(x, PreTrainedModel)}
    around = lambda name: (
        x for whole, x in found.items() if name.startswith(f"{whole}." if whole else "") and x is not found[name]
    )
    return {
        name: x for name, x in found.items() if name and all(x.config is not whole.config for whole in around(name))
    }


def become_linear(model: PreTrainedModel, form: str, scalings: dict[str, float] | None = None) -> None:
    """Change the class of a model whose configuration has `lion_layers`, add branches, and set a `form`."""
    name_classes(model)
    install_branches(model, scalings)
    model.set_attn_implementation(form)


def name_class(model: nn.Module) -> None:
    """Give a model of transformers its linearized class, whose forward reads the tokens."""
    if isinstance(model, PreTrainedModel) and not isinstance(model, LinearizedModel):
        model.__class__ = linearized_model_class(type(model))


def name_classes(model: PreTrainedModel) -> None:
    """Give a model, its base model and its configuration the classes of linearized models, for saving."""
    name_class(model)
    name_class(model.base_model)
    if not isinstance(model.config, LinearizedConfig):
        model.config.__class__ = linearized_config_class(type(model.config))


def check_whole(part: LinearizedModel, name: str) -> None:
    """
    Raise a ValueError if `save_pretrained` saves a model of transformers that would load with softmax in a linear
    part: transformers builds the parts by the configuration of the whole, often by fixed classes.
    """
    frame = currentframe()
    while frame is not None and frame.f_code is not PreTrainedModel.save_pretrained.__code__:
        frame = frame.f_back
    whole = None if frame is None else frame.f_locals["self"]
    saves_adapter = hasattr(whole, "peft_config")
    if whole is None or isinstance(whole, LinearizedModel) or saves_adapter or part not in set(whole.modules()):
        return
    try:
        with torch.device("meta"):
            made = type(whole)(type(whole.config).from_dict(whole.config.to_dict()))
    except Exception:  # a class of another package, which may load in another way
        return
    if not isinstance(dict(made.named_modules()).get(name), LinearizedModel):
        raise ValueError(
            f"This {type(whole).__name__} would be loaded with softmax in `{name}`, which is linear here: its "
            f'configuration does not say so. Convert the whole, `linearize(model, parts=["{name}"])`, or save '
            f"`model.{name}` alone."
        )


def install_branches(model: PreTrainedModel, scalings: dict[str, float] | None = None) -> None:
    """
    Add a part named `lion` to every attention module of `config.lion_layers`, on its device and in its dtype.
    `scalings`, by name of the module, are for the initial weights; `None` leaves the weights to transformers. Raises a
    ValueError if the configuration names a module that the model does not have.
    """
    config, base = model.config, model.base_model
    for name, sizes in (config.lion_layers or {}).items():
        try:
            module = base.get_submodule(name)
        except AttributeError:
            raise ValueError(
                f"`lion_layers` names {name!r}, which a {type(base).__name__} of this configuration does not have: "
                "linearize the encoder again after its layers have changed."
            ) from None
        module.lion = KeptAttention(config) if sizes is None else LinearBranch(config, *sizes)
        module.lion.has_sdpa = model._supports_sdpa
        if sizes is not None and scalings is not None:
            module.lion.start(scalings[name])
            like = next(p for p in module.parameters() if p.is_floating_point())
            module.lion.to(like.device, like.dtype)
            if module.lion.decay is not None:
                module.lion.decay.to(accumulation_dtype(like.dtype))
            module.lion.train(module.training)
    if any(isinstance(x, LinearBranch) and x.decay is not None for x in model.modules()):  # SPEC §5: stays float32
        model._keep_in_fp32_modules_strict = {*(model._keep_in_fp32_modules_strict or ()), "lion.decay"}
    name_class(base)
    make_positions_cyclic(model)


# The classes made so far, by the class of transformers that they are derived from.
CONFIG_CLASSES: dict[type, type[PreTrainedConfig]] = {}
MODEL_CLASSES: dict[type, type[PreTrainedModel]] = {}


def linearized_config_class(base: type[PreTrainedConfig]) -> type[PreTrainedConfig]:
    """
    The configuration class of linearized models whose configuration was a `base`, registered with the Auto classes.
    (Code that was loaded from beside weights is not registered: other weights may come with another version of it.)
    """
    if base in CONFIG_CLASSES:
        return CONFIG_CLASSES[base]
    members = {"model_type": PREFIX + base.model_type, "__module__": __name__, "__doc__": LinearizedConfig.__doc__}
    members["class_of_type"] = staticmethod(class_of_type)
    CONFIG_CLASSES[base] = config_class = strict(type(f"Lion{base.__name__}", (LinearizedConfig, base), members))
    models = {name: tuple(map(linearized_model_class, found)) for name, found in auto_models(base).items()}
    names = {auto_class: tuple(model.__name__ for model in found) for auto_class, found in models.items()}
    config_class.auto_classes = {"AutoConfig": (config_class.__name__,)} | names
    if not LazyConfigs.are_installed:
        return config_class
    AutoConfig.register(config_class.model_type, config_class, exist_ok=True)
    for mapping in (TOKENIZER_MAPPING, FEATURE_EXTRACTOR_MAPPING, PROCESSOR_MAPPING):
        if base in mapping:
            mapping.register(config_class, mapping[base], exist_ok=True)
    if base in IMAGE_PROCESSOR_MAPPING:  # by names: the classes themselves may need torchvision
        names = IMAGE_PROCESSOR_MAPPING_NAMES.get(base.model_type) or IMAGE_PROCESSOR_MAPPING[base]
        IMAGE_PROCESSOR_MAPPING.register(config_class, names, exist_ok=True)
    for auto_class, found in models.items():  # of several, `config.architectures` chooses
        getattr(transformers, auto_class).register(config_class, found if len(found) > 1 else found[0], exist_ok=True)
    return config_class


def auto_models(base: type[PreTrainedConfig]) -> dict[str, tuple[type[PreTrainedModel], ...]]:
    """The model classes of transformers for this configuration class, by the Auto class that loads them."""
    models = {auto_class: mapping[base] for auto_class, mapping in model_mappings().items() if base in mapping}
    models = {name: tuple(found) if isinstance(found, tuple | list) else (found,) for name, found in models.items()}
    # AutoModel also loads classes that no Auto class of transformers loads, such as encoders of encoder-decoders.
    if base.__module__.startswith("transformers."):
        file = import_module(base.__module__.replace(".configuration_", ".modeling_"))
        known = {model for found in models.values() for model in found}
        others = (x for x in vars(file).values() if isinstance(x, type) and issubclass(x, PreTrainedModel))
        others = (x for x in others if x.config_class is base and "pretrained" not in x.__name__.lower())
        models["AutoModel"] = (*models.get("AutoModel", ()), *(x for x in others if x not in known))
    return {name: found for name, found in models.items() if found}


def linearized_model_class(base: type[PreTrainedModel]) -> type[PreTrainedModel]:
    """The class of linearized models whose class was `base`."""
    if base not in MODEL_CLASSES:
        members = {"config_class": linearized_config_class(base.config_class), "source_class": base}
        members |= {"__module__": __name__, "__doc__": base.__doc__, "forward": with_tokens(base.forward)}
        if base not in MODEL_CLASSES:  # the call above may have made this class, too
            MODEL_CLASSES[base] = made = type(f"Lion{base.__name__}", (LinearizedModel, base), members)
            register_recorded_outputs(made)
            # By name, as for a CLIPVisionModel that is loaded from the folder of a CLIPModel.
            if (conversions := get_checkpoint_conversion_mapping(base.__name__)) is not None:
                register_checkpoint_conversion_mapping(made.__name__, conversions, overwrite=True)
    return MODEL_CLASSES[base]


def class_by_name(name: str) -> type:
    """A class of linearized models or their configurations by name. Raises an AttributeError if there is none."""
    made = (*CONFIG_CLASSES.values(), *MODEL_CLASSES.values())
    if (found := next((x for x in made if x.__name__ == name), None)) is not None:
        return found
    base = getattr(transformers, name.removeprefix("Lion"), None) if name.startswith("Lion") else None
    if isinstance(base, type) and issubclass(base, PreTrainedConfig):
        return linearized_config_class(base)
    if isinstance(base, type) and issubclass(base, PreTrainedModel) and base.config_class is not None:
        return linearized_model_class(base)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __getattr__(name: str) -> type:
    """Classes by name, for pickle and for code that is saved beside weights."""
    return class_by_name(name)


class LazyConfigs(dict):
    """
    transformers' dictionary of registered configuration classes by model type. It makes the classes of this file on
    demand: making all of them at import would import a file of transformers for each.
    """

    are_installed = False

    def __contains__(self, model_type: object) -> bool:
        return super().__contains__(model_type) or source_type(model_type) is not None

    def __missing__(self, model_type: str) -> type[PreTrainedConfig]:
        if source_type(model_type) is None:
            raise KeyError(model_type)
        return class_of_type(model_type)


def source_type(model_type: object) -> str | None:
    """The `model_type` of transformers in "lion-<model_type>"; `None` for other strings."""
    if not isinstance(model_type, str) or not model_type.startswith(PREFIX):
        return None
    source = model_type.removeprefix(PREFIX)
    return source if source in CONFIG_MAPPING else None


def class_of_type(model_type: str) -> type[PreTrainedConfig]:
    """The configuration class of a model type "lion-<model_type>". Raises a ValueError for other types."""
    if (source := source_type(model_type)) is None:
        raise ValueError(
            f"`model_type` is {model_type!r}, and transformers has no {model_type.removeprefix(PREFIX)!r}."
        )
    return linearized_config_class(CONFIG_MAPPING[source])


def make_configs_lazily() -> None:
    """Let transformers' Auto classes find the classes of this file by `model_type`."""
    LazyConfigs.are_installed = True
    replace_registered_configs(lambda configs: configs if isinstance(configs, LazyConfigs) else LazyConfigs(configs))
