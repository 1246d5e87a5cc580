# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Embeddings of text tokens (SPEC §7) and image patches (SPEC §6)."""

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig
from transformers import initialization as init

from .blocks import make_norm
from .sequence.input_checks import check_ids
from .tokens import cyclic_positions


class LionTextEmbeddings(nn.Module):
    """Word embeddings plus, if configured, embeddings of token types and positions, then a norm (SPEC §7)."""

    def __init__(self, config: PreTrainedConfig):
        super().__init__()
        self.config = config
        size = config.hidden_size
        self.word_embeddings = nn.Embedding(config.vocab_size, size, padding_idx=config.pad_token_id)
        self.token_type_embeddings = None
        if config.type_vocab_size > 0:
            self.token_type_embeddings = nn.Embedding(config.type_vocab_size, size)
        self.position_embeddings = None
        if config.position_embedding_type != "none":
            self.position_embeddings = nn.Embedding(config.context_length, size)
        self.layer_norm = make_norm(config)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(
        self,
        input_ids: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
    ) -> Tensor:
        """Returns `(batch, length, hidden_size)`. `position_ids`, `(batch or 1, length)`, come from `read_text`."""
        if inputs_embeds is None:
            # An adapter around the table may have no `num_embeddings` (peft: `trainable_token_indices`).
            vocab_size = getattr(self.word_embeddings, "num_embeddings", self.config.vocab_size)
            check_ids("input_ids", input_ids, vocab_size, "vocab_size", input_ids.shape)
            inputs_embeds = self.word_embeddings(input_ids)
        shape = inputs_embeds.shape[:2]
        if token_type_ids is None:
            token_type_ids = torch.zeros(1, shape[1], dtype=torch.long, device=inputs_embeds.device)
        check_ids("token_type_ids", token_type_ids, self.config.type_vocab_size, "type_vocab_size", shape)
        # A device_map may put each table on a different device.
        device, embeddings = inputs_embeds.device, inputs_embeds
        if self.token_type_embeddings is not None:
            embeddings = embeddings + self.token_type_embeddings(token_type_ids).to(device)
        if self.position_embeddings is not None:
            num_positions = self.position_embeddings.num_embeddings
            if self.config.position_embedding_type == "cyclic":
                position_ids = cyclic_positions(position_ids, num_positions)
            check_ids("position_ids", position_ids, num_positions, "max_position_embeddings", shape)
            embeddings = embeddings + self.position_embeddings(position_ids).to(device)
        return self.dropout(self.layer_norm(embeddings))


class PatchProjection(nn.Conv2d):
    """`nn.Conv2d` that casts pixels to the dtype of its weight in each call, since hooks may change that dtype."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.to(self.weight.dtype))


class LionImageEmbeddings(nn.Module):
    """A CLS token, if configured, and the patches of an image row by row, with or without positions (SPEC §6)."""

    def __init__(self, config: PreTrainedConfig, use_mask_token: bool = False):
        super().__init__()
        self.config = config
        self.num_cls_tokens = int(config.use_cls_token)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, config.hidden_size)) if config.use_cls_token else None
        self.mask_token = nn.Parameter(torch.zeros(1, 1, config.hidden_size)) if use_mask_token else None
        self.patch_embeddings = PatchProjection(
            config.num_channels, config.hidden_size, kernel_size=config.patch_shape, stride=config.patch_shape
        )
        self.position_embeddings = None
        if config.position_embedding_type == "absolute":
            self.position_embeddings = nn.Parameter(torch.zeros(1, config.context_length, config.hidden_size))
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def init_own_weights(self, config: PreTrainedConfig) -> None:
        for parameter in (self.cls_token, self.position_embeddings):
            if parameter is not None:
                init.trunc_normal_(parameter, std=config.initializer_range)
        if self.mask_token is not None:
            init.zeros_(self.mask_token)

    def forward(
        self, pixel_values: Tensor, bool_masked_pos: Tensor | None = None, interpolate_pos_encoding: bool | None = None
    ) -> Tensor:
        grid = patch_grid(self.config, pixel_values)
        embeddings = self.patch_embeddings(pixel_values).flatten(2).transpose(1, 2)
        if bool_masked_pos is not None:
            if self.mask_token is None:
                raise ValueError(
                    "`bool_masked_pos` needs a mask token, which this model was made without: use "
                    "LionForMaskedImageModeling, or LionModel(config, use_mask_token=True)."
                )
            if bool_masked_pos.shape != embeddings.shape[:2]:
                raise ValueError(
                    f"`bool_masked_pos` must be (batch, num_patches) = {tuple(embeddings.shape[:2])}; got "
                    f"{tuple(bool_masked_pos.shape)}."
                )
            embeddings = torch.where(bool_masked_pos.bool().unsqueeze(-1), self.mask_token, embeddings)
        if self.cls_token is not None:
            cls_token = self.cls_token.expand(embeddings.shape[0], -1, -1)
            embeddings = torch.cat((cls_token, embeddings), dim=1)
        if self.position_embeddings is not None:
            embeddings = embeddings + self.positions(grid, interpolate_pos_encoding)
        return self.dropout(embeddings)

    def positions(self, grid: tuple[int, int], interpolate_pos_encoding: bool | None) -> Tensor:
        """The position embeddings of the CLS token and a grid of patches, `(1, CLS + rows * columns, hidden_size)`."""
        if grid == self.config.patch_grid:
            return self.position_embeddings
        if not interpolate_pos_encoding:
            height, width = (n * p for n, p in zip(grid, self.config.patch_shape, strict=True))
            raise ValueError(
                f"The image is {height}x{width} pixels, but `image_size` is {self.config.image_shape[0]}x"
                f"{self.config.image_shape[1]}: resize it (the image processor does), or pass "
                "`interpolate_pos_encoding=True`."
            )
        cls_position, positions = self.position_embeddings.tensor_split((self.num_cls_tokens,), dim=1)
        positions = positions.transpose(1, 2).unflatten(2, self.config.patch_grid)
        positions = nn.functional.interpolate(positions, size=grid, mode="bicubic", align_corners=False)
        return torch.cat((cls_position, positions.flatten(2).transpose(1, 2)), dim=1)


def patch_grid(config: PreTrainedConfig, pixel_values: Tensor) -> tuple[int, int]:
    """The number of rows and columns of patches. Raises a ValueError unless images consist of whole patches."""
    if pixel_values.dim() != 4 or pixel_values.shape[1] != config.num_channels:
        raise ValueError(
            f"pixel_values must be (batch, num_channels, height, width) with `num_channels` {config.num_channels}; "
            f"got {tuple(pixel_values.shape)}. Convert the images: image.convert('RGB') gives 3 channels, 'L' 1."
        )
    (height, width), (patch_height, patch_width) = pixel_values.shape[2:], config.patch_shape
    if height % patch_height or width % patch_width or 0 in (height, width):
        raise ValueError(
            f"pixel_values are {height}x{width} pixels, which is not a whole number of {patch_height}x{patch_width} "
            "patches (`patch_size`): resize or pad the images."
        )
    return height // patch_height, width // patch_width


def join_patches(patches: Tensor, rows: int, columns: int) -> Tensor:
    """`(batch, rows * columns, channels, height, width)` to `(batch, channels, rows * height, columns * width)`."""
    patches = patches.unflatten(1, (rows, columns))
    return patches.permute(0, 3, 1, 4, 2, 5).flatten(4, 5).flatten(2, 3)
