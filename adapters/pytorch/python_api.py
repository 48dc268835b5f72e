"""Names the Python function that led to an operator, from the call stack.

No function mode is used for it: one would switch off fused fast paths. The innermost frame outside of torch is at one
expression of the user's source; that expression (``F.silu(x)``, ``x[0]``, ``a @ b``) names the function. Asked once for
each operator node.
"""

from __future__ import annotations

import ast
import linecache
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from types import FrameType

_TORCH = str(Path(torch.__file__).parent)
_OWN = str(Path(__file__).parent)
_FUNCTIONAL = {
    str(Path(_TORCH, "nn", "functional.py")): "torch.nn.functional.",
    str(Path(_TORCH, "functional.py")): "torch.",
    str(Path(_TORCH, "_tensor.py")): "torch.Tensor.",
}
_OPERATORS: dict[type[ast.AST], str] = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "truediv", ast.FloorDiv: "floordiv", ast.Mod: "mod",
    ast.Pow: "pow", ast.MatMult: "matmul", ast.BitAnd: "and", ast.BitOr: "or", ast.BitXor: "xor",
    ast.LShift: "lshift", ast.RShift: "rshift", ast.USub: "neg", ast.Invert: "invert", ast.UAdd: "pos",
    ast.Eq: "eq", ast.NotEq: "ne", ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge",
}  # fmt: skip


def python_api(depth: int = 1) -> str:
    """Gives ``torch.nn.functional.silu``, ``torch.Tensor.__getitem__`` or the like, or "" where it cannot be told."""
    frame: FrameType | None = sys._getframe(depth)
    name = ""
    while frame is not None:
        file = frame.f_code.co_filename
        if file in _FUNCTIONAL and frame.f_code.co_name != "wrapped":  # a binary operator of Tensor: see the caller
            name = _FUNCTIONAL[file] + frame.f_code.co_name
        elif not file.startswith(_OWN):
            if name:
                return name
            if not _is_plumbing(file):
                return _called_at(frame)
        frame = frame.f_back
    return name


def is_in_compiled_code(depth: int = 1) -> bool:
    """Tells whether the operator runs in code that a compiler made."""
    frame: FrameType | None = sys._getframe(depth)
    while frame is not None:
        if "torchinductor_" in frame.f_code.co_filename or frame.f_code.co_name == "compile_wrapper":
            return True
        frame = frame.f_back
    return False


def _is_plumbing(file: str) -> bool:
    """Tells whether a file of torch only passes calls on; its modules and functions are code like the user's."""
    return file.startswith(_TORCH) and Path(file).name in {
        "_ops.py", "_python_dispatch.py", "overrides.py", "_tensor.py", "_contextlib.py", "_jit_internal.py",
        "function.py", "_compile.py", "eval_frame.py",
    }  # fmt: skip


def _called_at(frame: FrameType) -> str:
    expression = _expression(frame)
    if isinstance(expression, ast.Call):
        name = _function_name(expression.func, frame)
        return "" if name.endswith("__call__") else name
    if isinstance(expression, ast.Subscript):
        kind = "set" if isinstance(expression.ctx, ast.Store) else "get"
        return f"torch.Tensor.__{kind}item__"
    if isinstance(expression, (ast.BinOp, ast.UnaryOp)) and type(expression.op) in _OPERATORS:
        return f"torch.Tensor.__{_OPERATORS[type(expression.op)]}__"
    if isinstance(expression, ast.AugAssign) and type(expression.op) in _OPERATORS:
        return f"torch.Tensor.__i{_OPERATORS[type(expression.op)]}__"
    if isinstance(expression, ast.Compare) and type(expression.ops[0]) in _OPERATORS:
        return f"torch.Tensor.__{_OPERATORS[type(expression.ops[0])]}__"
    if isinstance(expression, ast.Attribute) and hasattr(torch.Tensor, expression.attr):
        return f"torch.Tensor.{expression.attr}"
    return ""


def _expression(frame: FrameType) -> ast.AST | None:
    """Gives the expression that a frame is evaluating (Python 3.11 and later know its place in the source)."""
    positions = getattr(frame.f_code, "co_positions", None)
    if positions is None or frame.f_lasti < 0:
        return None
    line, end_line, column, end_column = list(positions())[frame.f_lasti // 2]
    if line is None or end_line is None or column is None or end_column is None:
        return None
    lines = linecache.getlines(frame.f_code.co_filename, frame.f_globals)[line - 1 : end_line]
    if len(lines) != end_line - line + 1:
        return None
    rows = [row.encode() for row in lines]
    rows[-1] = rows[-1][:end_column]
    rows[0] = rows[0][column:]
    text = b"".join(rows).decode(errors="replace").strip()
    try:
        statement = ast.parse(f"({text})" if "=" not in text or "\n" in text else text).body[0]
    except (SyntaxError, ValueError, IndexError):
        return _assigned(text)
    return statement.value if isinstance(statement, ast.Expr) else statement


def _assigned(text: str) -> ast.AST | None:
    try:
        statement = ast.parse(text).body[0]
    except (SyntaxError, ValueError, IndexError):
        return None
    if isinstance(statement, ast.Assign):
        return statement.targets[0]
    return statement.value if isinstance(statement, ast.Expr) else statement


def _function_name(function: ast.expr, frame: FrameType) -> str:
    owner: Any = _value(function, frame)
    if owner is not None and callable(owner) and not isinstance(owner, torch.nn.Module):
        return _name_of(owner)
    if isinstance(function, ast.Attribute) and hasattr(torch.Tensor, function.attr):
        return f"torch.Tensor.{function.attr}"
    return ""


def _value(node: ast.expr, frame: FrameType) -> Any:
    """Looks up a dotted name in a frame, without calling anything: modules and classes only."""
    if isinstance(node, ast.Name):
        for names in (frame.f_locals, frame.f_globals):
            if node.id in names:
                return names[node.id]
        return None
    if isinstance(node, ast.Attribute):
        owner = _value(node.value, frame)
        if isinstance(owner, (type, type(torch), type(torch.ops.aten))):
            return getattr(owner, node.attr, None)
    return None


def _name_of(function: Any) -> str:
    name = getattr(function, "__name__", "") or ""
    if isinstance(function, torch._ops.OpOverloadPacket):
        return f"torch.ops.{str(function).replace('::', '.')}"
    module = getattr(function, "__module__", None) or ""
    if getattr(torch, name, None) is function:
        return f"torch.{name}"
    if getattr(torch.nn.functional, name, None) is function:
        return f"torch.nn.functional.{name}"
    return f"{module}.{name}" if module and name else name
