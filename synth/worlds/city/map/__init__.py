"""One seed's city: roads, places, transit, timetables and weather."""
