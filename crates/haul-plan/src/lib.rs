//! Floor 1, pure: how files become objects and which object goes next
