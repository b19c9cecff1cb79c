"""The immutable records that flow from the readers to the writers, by the stage that makes them."""
