// Statements about locks and the data that they guard, which Clang checks (-Wthread-safety; scripts/lint thread-safety
// runs it over the products). Other compilers see nothing. https://clang.llvm.org/docs/ThreadSafetyAnalysis.html
//
// The analysis follows names within one function. Code that it cannot follow (all locks of an array around a fork, a
// lock that another function took) is marked, with the reason beside it.
#pragma once

#if defined(__clang__)
#define FAR_THREAD_ANNOTATION(x) __attribute__((x))
#else
#define FAR_THREAD_ANNOTATION(x)
#endif

// A class whose objects can be held; one that holds another from its constructor to its destructor.
#define FAR_CAPABILITY(name) FAR_THREAD_ANNOTATION(capability(name))
#define FAR_SCOPED_CAPABILITY FAR_THREAD_ANNOTATION(scoped_lockable)

// The field may only be touched with the lock held; the second says this of the memory that a pointer points to.
#define FAR_GUARDED_BY(lock) FAR_THREAD_ANNOTATION(guarded_by(lock))
#define FAR_POINTEE_GUARDED_BY(lock) FAR_THREAD_ANNOTATION(pt_guarded_by(lock))

// The caller of the function must hold the lock; must not hold it.
#define FAR_REQUIRES(...) FAR_THREAD_ANNOTATION(requires_capability(__VA_ARGS__))
#define FAR_EXCLUDES(...) FAR_THREAD_ANNOTATION(locks_excluded(__VA_ARGS__))
// The function takes the lock, releases it, or takes it if it returns `success`. Without an argument: its object is the
// lock.
#define FAR_ACQUIRE(...) FAR_THREAD_ANNOTATION(acquire_capability(__VA_ARGS__))
#define FAR_RELEASE(...) FAR_THREAD_ANNOTATION(release_capability(__VA_ARGS__))
#define FAR_TRY_ACQUIRE(...) FAR_THREAD_ANNOTATION(try_acquire_capability(__VA_ARGS__))
// After it the lock counts as held: somebody else took it for the caller.
#define FAR_ASSERT_HELD(...) FAR_THREAD_ANNOTATION(assert_capability(__VA_ARGS__))
// It returns a reference to the lock.
#define FAR_RETURNS_LOCK(lock) FAR_THREAD_ANNOTATION(lock_returned(lock))

// Not checked inside.
#define FAR_UNCHECKED_LOCKING FAR_THREAD_ANNOTATION(no_thread_safety_analysis)
