"""What stands between a world and the policy, as settings and signatures; `synth/context/` carries it out."""
