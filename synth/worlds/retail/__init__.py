"""The retail world: a small shop with orders, products and a few business rules; the tiny policy's school."""
