"""What it takes to run Headrace for a team: stores that machines share, and the images of a deployment."""
