;; attack: A bit is flipped so that a component says it is a core module.
;; expect: load -> core-module
;; bytes: flip 6
