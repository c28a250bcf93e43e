"""What people said by hand, where it decides rows of the funnel, and how far it agrees with the funnel and the judge."""
