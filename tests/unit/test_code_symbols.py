"""Symbols in each language, and their names."""

from __future__ import annotations

import pytest

from vmrag_link.code.cutting import cut_code

SAMPLES: dict[str, tuple[str, dict[str, tuple[str, str]]]] = {
    "python": (
        '''"""Sessions."""
import time

class Session(Base):
    """A session that somebody is logged in with."""

    timeout = 30

    @property
    @cached(60)
    def age(self) -> float:
        """Seconds."""
        started = self.started
        return time.time() - started

    # Long-lived ones
    # are refreshed.
    async def refresh(
        self, *, force: bool = False
    ) -> None:
        if force or self.age > self.timeout:
            await self.renew()
            self.started = time.time()

@decorator
def login(name: str) -> Session:
    session = Session(name)
    session.open()
    return session
''',
        {
            "Session": ("class", "class Session(Base):"),
            "Session.age": ("method", "def age(self) -> float:"),
            "Session.refresh": ("method", "async def refresh( self, *, force: bool = False ) -> None:"),
            "login": ("function", "def login(name: str) -> Session:"),
        },
    ),
    "javascript": (
        """import x from 'x';

export class Cart extends Base {
  static defaults = { a: 1 };

  /** Adds one. */
  add(item, count = 1) {
    const found = this.items.find((each) => each.id === item.id);
    if (found) { found.count += count; }
    return this;
  }

  total = () => {
    let sum = 0;
    for (const each of this.items) { sum += each.price * each.count; }
    return sum;
  };
}

export const render = async (cart) => {
  const html = await template(cart);
  document.body.innerHTML = html;
  return html;
};

module.exports.reset = function (cart) {
  cart.items = [];
  cart.total = 0;
  return cart;
};

export default function () {
  const cart = new Cart();
  cart.open();
  return cart;
}
""",
        {
            "Cart": ("class", "export class Cart extends Base"),
            "Cart.add": ("method", "add(item, count = 1)"),
            "Cart.total": ("method", "total = () =>"),
            "render": ("function", "export const render = async (cart) =>"),
            "reset": ("function", "module.exports.reset = function (cart)"),
            "default": ("function", "export default function ()"),
        },
    ),
    "typescript": (
        """import { Injectable } from 'x';

export interface User {
  id: string;
  name: string;
  age?: number;
}

export type Id<T> =
  | string
  | number
  | T;

namespace Api {
  export function get(path: string): Promise<User> {
    const url = base + path;
    const found = fetch(url);
    return found.json();
  }
}

export enum Color {
  Red,
  Green,
  Blue,
}

@Injectable({ root: true })
export class Users<T> implements Store {
  private cache = new Map();
  private store: Store<User, Promise<User>>;

  @Log()
  public find(id: string): User | undefined {
    const found = this.cache.get(id);
    if (!found) { return undefined; }
    return found;
  }
}
""",
        {
            "User": ("interface", "export interface User"),
            "Id": ("type", "export type Id<T> ="),
            "Api.get": ("function", "export function get(path: string): Promise<User>"),
            "Color": ("enum", "export enum Color"),
            "Users": ("class", "export class Users<T> implements Store"),
            "Users.find": ("method", "public find(id: string): User | undefined"),
        },
    ),
    "tsx": (
        """export const Button: FC<Props> = ({ label }) => {
  const [on, set] = useState(false);
  const flip = () => set(!on);
  return <button onClick={flip}>{label}</button>;
};

export function App() {
  const label = 'x';
  const other = 'y';
  return <Button label={label} />;
}
""",
        {
            "Button": ("function", "export const Button: FC<Props> = ({ label }) =>"),
            "App": ("function", "export function App()"),
        },
    ),
    "go": (
        """package store

import "sync"

// Server keeps things.
type Server[T any] struct {
	mu sync.Mutex
	items map[string]T
}

// Put stores one.
func (s *Server[T]) Put(key string, item T) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.items[key] = item
	return nil
}

func New[T any]() *Server[T] {
	items := map[string]T{}
	server := &Server[T]{items: items}
	return server
}
""",
        {
            "Server": ("type", "type Server[T any] struct"),
            "Server.Put": ("method", "func (s *Server[T]) Put(key string, item T) error"),
            "New": ("function", "func New[T any]() *Server[T]"),
        },
    ),
    "rust": (
        """use std::fmt;

/// A point.
#[derive(Debug, Clone)]
pub struct Point<T> {
    x: T,
    y: T,
}

impl<T: Copy> fmt::Display for Point<T> {
    const NAME: &'static str = "point";

    #[inline]
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let x = self.x;
        let y = self.y;
        write!(f, "{} {}", x, y)
    }
}

pub trait Shape {
    const SIDES: u8;
    fn area(&self) -> f64;
    fn name(&self) -> String { String::new() }
}

enum Kind {
    Round,
    Square,
    Other(u8),
}

macro_rules! square {
    ($x:expr) => {
        $x * $x
    };
}
""",
        {
            "Point": ("struct", "pub struct Point<T>"),
            "Point.fmt": ("method", "fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result"),
            "Shape": ("trait", "pub trait Shape"),
            "Kind": ("enum", "enum Kind"),
            "square": ("macro", "macro_rules! square"),
        },
    ),
    "java": (
        """package shop;

import java.util.List;

/** A shop. */
@Entity
public class Shop<T> extends Base implements Open {
    private List<T> items;

    public Shop(List<T> items) {
        super();
        this.items = items;
        this.open();
    }

    @Override
    public int count(String name) throws Closed {
        int found = 0;
        for (T each : items) { found++; }
        return found;
    }
}

interface Open {
    void open();
    void close();
    boolean isOpen();
}

enum Color {
    RED,
    GREEN,
    BLUE;
}
""",
        {
            "Shop": ("class", "public class Shop<T> extends Base implements Open"),
            "Shop.Shop": ("method", "public Shop(List<T> items)"),
            "Shop.count": ("method", "public int count(String name) throws Closed"),
            "Open": ("interface", "interface Open"),
            "Color": ("enum", "enum Color"),
        },
    ),
    "c": (
        """#include <stdio.h>

typedef struct list {
    struct list *next;
    int value;
} list_t;

enum color {
    RED,
    GREEN,
};

/* Its length. */
static int *
length(const list_t *head, int most)
{
    int found = 0;
    while (head) { head = head->next; found++; }
    return found;
}
""",
        {
            "list_t": ("struct", "typedef struct list"),
            "color": ("enum", "enum color"),
            "length": ("function", "static int * length(const list_t *head, int most)"),
        },
    ),
    "cpp": (
        """#include <vector>

namespace shop::cart {

template <typename T>
class Cart : public Base {
public:
    Cart() = default;

    int count(const T& item) const {
        int found = 0;
        for (auto& each : items) { found += each == item; }
        return found;
    }

private:
    std::vector<T> items;
};

int Total::sum(int start) const {
    int sum = start;
    sum += base;
    return sum;
}

bool operator==(const Total& a, const Total& b) {
    int x = a.base;
    int y = b.base;
    return x == y;
}

}  // namespace
""",
        {
            "shop.cart.Cart": ("class", "template <typename T> class Cart : public Base"),
            "shop.cart.Cart.count": ("method", "int count(const T& item) const"),
            "shop.cart.Total.sum": ("function", "int Total::sum(int start) const"),
            "shop.cart.operator==": ("function", "bool operator==(const Total& a, const Total& b)"),
        },
    ),
    "c_sharp": (
        """using System;

namespace Shop.Cart
{
    /// <summary>A cart.</summary>
    [Serializable]
    public class Cart<T> : Base, IOpen where T : class
    {
        private readonly List<T> items = new();

        public int Count
        {
            get { return items.Count; }
            set { throw new NotSupportedException(); }
        }

        public Cart(List<T> items)
        {
            this.items = items;
            Open();
        }

        [HttpGet]
        public async Task<T> Find(string name)
        {
            var found = await store.Get(name);
            if (found == null) return null;
            return found;
        }
    }

    public interface IOpen
    {
        void Open();
        void Close();
    }

    public record Point(int X, int Y)
    {
        public int Sum => X + Y;
        public int Product => X * Y;
    }
}
""",
        {
            "Shop.Cart.Cart": ("class", "public class Cart<T> : Base, IOpen where T : class"),
            "Shop.Cart.Cart.Count": ("property", "public int Count"),
            "Shop.Cart.Cart.Cart": ("method", "public Cart(List<T> items)"),
            "Shop.Cart.Cart.Find": ("method", "public async Task<T> Find(string name)"),
            "Shop.Cart.IOpen": ("interface", "public interface IOpen"),
            "Shop.Cart.Point": ("record", "public record Point(int X, int Y)"),
        },
    ),
    "ruby": (
        """require 'set'

# Things to sell.
module Shop
  LIMIT = 10

  class Cart < Base
    attr_reader :items, :total

    # Adds one.
    def add(item, count: 1)
      @items << item
      @total += item.price * count
      self
    end

    def self.open(name)
      cart = new
      cart.name = name
      cart
    end
  end
end
""",
        {
            "Shop": ("module", "module Shop"),
            "Shop.Cart": ("class", "class Cart < Base"),
            "Shop.Cart.add": ("method", "def add(item, count: 1)"),
            "Shop.Cart.open": ("method", "def self.open(name)"),
        },
    ),
    "php": (
        """<?php
namespace Shop;

use Base;

/** A cart. */
#[Entity]
final class Cart extends Base implements Open
{
    private array $items = [];

    public function add(Item $item, int $count = 1): self
    {
        $this->items[] = $item;
        $this->total += $item->price * $count;
        return $this;
    }
}

interface Open
{
    public function open(): void;
    public function close(): void;
}

function total(Cart $cart): int
{
    $sum = 0;
    foreach ($cart as $each) { $sum += $each; }
    return $sum;
}
""",
        {
            "Cart": ("class", "final class Cart extends Base implements Open"),
            "Cart.add": ("method", "public function add(Item $item, int $count = 1): self"),
            "Open": ("interface", "interface Open"),
            "total": ("function", "function total(Cart $cart): int"),
        },
    ),
    "kotlin": (
        """package shop

import java.util.UUID

/** A cart. */
@Serializable
data class Cart(val items: List<Item>) : Base() {
    private val limit = 10

    override fun add(item: Item, count: Int): Cart {
        val found = items + item
        require(found.size < limit)
        return copy(items = found)
    }

    companion object {
        fun empty(): Cart {
            val none = emptyList<Item>()
            return Cart(none)
        }
    }
}

interface Open {
    fun open()
    fun close()
    fun isOpen(): Boolean
}

fun String.toCart(separator: Char): Cart {
    val words = split(separator)
    val items = words.map { Item(it) }
    return Cart(items)
}
""",
        {
            "Cart": ("class", "data class Cart(val items: List<Item>) : Base()"),
            "Cart.add": ("method", "override fun add(item: Item, count: Int): Cart"),
            "Cart.Companion": ("object", "companion object"),
            "Open": ("interface", "interface Open"),
            "toCart": ("function", "fun String.toCart(separator: Char): Cart"),
        },
    ),
    "swift": (
        """import Foundation

/// A cart.
public struct Cart<T>: Codable {
    private let limit = 10

    public init(items: [T]) {
        self.items = items
        self.total = 0
        self.name = ""
    }

    public func add(_ item: T, count: Int = 1) -> Cart {
        var found = items
        found.append(item)
        return Cart(items: found)
    }
}

extension Cart where T: Open {
    static let zero = 0
    static let one = 1

    func open(name: String) throws {
        for each in items { each.open() }
        isOpen = true
        self.name = name
    }
}

protocol Open {
    func open()
    func close()
    var isOpen: Bool { get }
}

func total(of cart: Cart<Item>) -> Int {
    let prices = cart.items.map { $0.price }
    let sum = prices.reduce(0, +)
    return sum
}
""",
        {
            "Cart": ("struct", "public struct Cart<T>: Codable"),
            "Cart.init": ("method", "public init(items: [T])"),
            "Cart.add": ("method", "public func add(_ item: T, count: Int = 1) -> Cart"),
            "Cart.open": ("method", "func open(name: String) throws"),
            "Open": ("protocol", "protocol Open"),
            "total": ("function", "func total(of cart: Cart<Item>) -> Int"),
        },
    ),
    "bash": (
        """#!/bin/sh
set -eu

# Says what went wrong.
fail() {
    echo "$1" >&2
    rm -f "$file"
    exit 1
}

function build {
    make all || fail build
    make install
    make clean
}
""",
        {"fail": ("function", "fail()"), "build": ("function", "function build")},
    ),
    "sql": (
        """-- What is sold.
CREATE TABLE shop.items (
    id INT PRIMARY KEY,
    name TEXT NOT NULL,
    price INT
);

INSERT INTO shop.items VALUES (1, 'a', 2);

CREATE OR REPLACE VIEW cheap AS
SELECT name
FROM shop.items
WHERE price < 10;

CREATE FUNCTION total(a int) RETURNS int AS $$
BEGIN
    RETURN a;
END;
$$ LANGUAGE plpgsql;
""",
        {
            "shop.items": ("table", "CREATE TABLE shop.items"),
            "cheap": ("view", "CREATE OR REPLACE VIEW cheap AS"),
            "total": ("function", "CREATE FUNCTION total(a int) RETURNS int"),
        },
    ),
}


@pytest.mark.parametrize("language", sorted(SAMPLES))
def test_symbols_have_names_kinds_and_signatures(language: str) -> None:
    text, expected = SAMPLES[language]
    pieces = cut_code(text, language, 160)
    result = {piece.symbol: (piece.kind, piece.signature) for piece in reversed(pieces) if piece.symbol}
    assert {name: result.get(name) for name in expected} == expected
    assert "".join(text[piece.start : piece.end] for piece in pieces) == text


@pytest.mark.parametrize(
    ("language", "symbol", "above"),
    [
        ("python", "Session.age", "    @property\n    @cached(60)\n"),
        ("python", "Session.refresh", "    # Long-lived ones\n    # are refreshed.\n"),
        ("python", "login", "@decorator\n"),
        ("javascript", "Cart.add", "  /** Adds one. */\n"),
        ("typescript", "Users", "@Injectable({ root: true })\n"),
        ("typescript", "Users.find", "  @Log()\n"),
        ("go", "Server", "// Server keeps things.\n"),
        ("go", "Server.Put", "// Put stores one.\n"),
        ("rust", "Point", "/// A point.\n#[derive(Debug, Clone)]\n"),
        ("rust", "Point.fmt", "    #[inline]\n"),
        ("java", "Shop", "/** A shop. */\n@Entity\n"),
        ("java", "Shop.count", "    @Override\n"),
        ("c", "length", "/* Its length. */\n"),
        ("cpp", "shop.cart.Cart", "template <typename T>\n"),
        ("c_sharp", "Shop.Cart.Cart", "    /// <summary>A cart.</summary>\n    [Serializable]\n"),
        ("c_sharp", "Shop.Cart.Cart.Find", "        [HttpGet]\n"),
        ("ruby", "Shop", "# Things to sell.\n"),
        ("ruby", "Shop.Cart.add", "    # Adds one.\n"),
        ("php", "Cart", "/** A cart. */\n#[Entity]\n"),
        ("kotlin", "Cart", "/** A cart. */\n@Serializable\n"),
        ("swift", "Cart", "/// A cart.\n"),
        ("bash", "fail", "# Says what went wrong.\n"),
        ("sql", "shop.items", "-- What is sold.\n"),
    ],
)
def test_comment_above_a_symbol_is_in_its_piece(language: str, symbol: str, above: str) -> None:
    text, _ = SAMPLES[language]
    first = next(piece for piece in cut_code(text, language, 160) if piece.symbol == symbol)
    assert text[first.start : first.end].startswith(above)


@pytest.mark.parametrize(
    ("text", "symbol"),
    [
        ("int (operator+)(A a, A b) {\n  return 1;\n}\n", "operator+"),
        ("struct A {\n  (~A)() {\n    end();\n  }\n};\n", "A.~A"),
    ],
)
def test_name_in_parentheses_has_none_in_cpp(text: str, symbol: str) -> None:
    pieces = cut_code(text, "cpp", 400)
    assert symbol in [row.symbol for piece in pieces for row in piece.declared]


def test_grammar_is_loaded_without_its_package() -> None:
    symbols = pytest.importorskip("vmrag_link.code.symbols")
    binding = symbols._load_binding("tree_sitter_python")
    assert binding.__name__ == "tree_sitter_python._binding"
